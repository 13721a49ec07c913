-- Takes out the end of the recordings in `tails`; whose keys stood there are counted anew.
INSERT INTO touched_keys
SELECT DISTINCT r.project, s.key
FROM steps s JOIN tails t USING (rec) JOIN recordings r USING (rec) WHERE s.seq >= t.seq;

DELETE FROM steps USING tails t WHERE steps.rec = t.rec AND steps.seq >= t.seq;
DELETE FROM parts USING tails t WHERE parts.rec = t.rec AND parts.idx >= t.idx;
DELETE FROM pack_index USING tails t WHERE pack_index.rec = t.rec AND pack_index.pack >= t.pack;
