-- Counts every key once over all files, numbers the counted steps, and rebuilds the session rows.
-- Only what a touched session or a removed key can change is looked at; the result is that of a
-- complete recount, whatever the order of ingest.

-- 1. Keys whose owner may have changed.
CREATE OR REPLACE TEMP TABLE affected_keys AS
SELECT DISTINCT r.project, s.key
FROM steps s JOIN recordings r USING (rec) JOIN touched_sessions USING (project, user_id, session_id)
UNION
SELECT project, key FROM touched_keys;

-- 2. Sessions that hold one of them.
CREATE OR REPLACE TEMP TABLE affected_sessions AS
SELECT DISTINCT r.project, r.user_id, r.session_id
FROM steps s JOIN recordings r USING (rec) JOIN affected_keys USING (project, key)
UNION
SELECT project, user_id, session_id FROM touched_sessions;

-- 3. One owner a key: the whole answer before one that was cut while it streamed, an original
--    before copies, then the session that ended first, then the fullest recording; names and
--    digests settle what is left.
CREATE OR REPLACE TEMP TABLE owners AS
SELECT s.rec, s.seq, row_number() OVER (
    PARTITION BY r.project, s.key
    ORDER BY s.output DESC NULLS LAST, s.copied_from IS NOT NULL, t.last_at NULLS LAST, r.session_id, r.user_id,
             r.n_steps DESC, f.digest, r.lane, s.rec, s.seq
) = 1 AS counted
FROM steps s
JOIN recordings r USING (rec)
JOIN (SELECT file_id, digest, source FROM files) f USING (file_id)
JOIN affected_keys USING (project, key)
JOIN (
    SELECT project, user_id, session_id, max(last_at) AS last_at
    FROM recordings GROUP BY ALL
) t USING (project, user_id, session_id);

UPDATE steps SET counted = o.counted FROM owners o
WHERE steps.rec = o.rec AND steps.seq = o.seq AND steps.counted <> o.counted;

-- 4. Numbers. Inside a recording the order is that of the file, since its pool grew in that order;
--    time only interleaves recordings of one lane, so a step is never earlier than those before it.
CREATE OR REPLACE TEMP TABLE numbers AS
WITH placed AS (
    SELECT s.rec, s.seq, s.counted, s.step, r.project, r.user_id, r.session_id, r.lane, r.first_at,
           f.digest,
           max(s."at") OVER (PARTITION BY s.rec ORDER BY s.seq) AS reached
    FROM steps s
    JOIN recordings r USING (rec)
    JOIN (SELECT file_id, digest, source FROM files) f USING (file_id)
    JOIN affected_sessions USING (project, user_id, session_id)
)
SELECT rec, seq, step AS old, CASE WHEN counted THEN row_number() OVER (
    PARTITION BY project, user_id, session_id, lane, counted
    ORDER BY coalesce(reached, first_at) NULLS FIRST, first_at NULLS FIRST, digest, rec, seq
) - 1 END AS step
FROM placed;

UPDATE steps SET step = n.step FROM numbers n
WHERE steps.rec = n.rec AND steps.seq = n.seq AND n.step IS DISTINCT FROM n.old;

-- 5. Session rows.
DELETE FROM sessions USING affected_sessions a
WHERE sessions.project = a.project AND sessions.user_id = a.user_id
  AND sessions.session_id = a.session_id;

INSERT INTO sessions
WITH counted AS (
    SELECT r.project, r.user_id, r.session_id,
           min(coalesce(s."at", s.ended_at)) FILTER (s.counted) AS started_at,
           max(coalesce(s.ended_at, s."at")) FILTER (s.counted) AS ended_at,
           count(*) FILTER (s.counted) AS n_steps,
           count(DISTINCT r.lane) FILTER (s.counted) AS n_lanes,
           count(*) FILTER (NOT s.counted) AS n_copies,
           list_sort(list(DISTINCT s.model) FILTER (s.counted AND s.model IS NOT NULL)) AS models,
           sum(s.input) FILTER (s.counted)::BIGINT AS input,
           sum(s.cache_read) FILTER (s.counted)::BIGINT AS cache_read,
           sum(s.cache_write) FILTER (s.counted)::BIGINT AS cache_write,
           sum(s.output) FILTER (s.counted)::BIGINT AS output,
           bit_xor(hash(s.rec, s.seq, s.step)) AS fingerprint
    FROM steps s JOIN recordings r USING (rec)
    JOIN affected_sessions USING (project, user_id, session_id)
    GROUP BY ALL
), named AS (
    SELECT r.project, r.user_id, r.session_id,
           arg_min(f.source, (r.first_at, f.digest)) AS source,
           first(r.title ORDER BY r.parent IS NOT NULL, r.last_at DESC NULLS LAST, f.digest, r.lane)
               FILTER (r.title IS NOT NULL) AS title,
           min(r.first_at) AS first_at, max(r.last_at) AS last_at,
           bit_xor(hash(r.rec, r.n_parts)) AS fingerprint
    FROM recordings r JOIN (SELECT file_id, digest, source FROM files) f USING (file_id)
    JOIN affected_sessions USING (project, user_id, session_id)
    GROUP BY ALL
)
SELECT project, user_id, session_id, n.source, n.title,
       coalesce(c.started_at, n.first_at), coalesce(c.ended_at, n.last_at),
       coalesce(c.n_steps, 0), coalesce(c.n_lanes, 0), coalesce(c.n_copies, 0),
       coalesce(c.models, []), c.input, c.cache_read, c.cache_write, c.output,
       xor(coalesce(c.fingerprint, 0), n.fingerprint)
FROM named n LEFT JOIN counted c USING (project, user_id, session_id);

-- 6. Facts of sessions that are gone or empty now.
CREATE OR REPLACE TEMP TABLE emptied AS
SELECT a.* FROM affected_sessions a ANTI JOIN (FROM sessions WHERE n_steps > 0) s
USING (project, user_id, session_id);

DELETE FROM facts USING emptied e
WHERE facts.project = e.project AND facts.user_id = e.user_id AND facts.session_id = e.session_id;
DELETE FROM step_facts USING emptied e
WHERE step_facts.project = e.project AND step_facts.user_id = e.user_id
  AND step_facts.session_id = e.session_id;
DELETE FROM findings USING emptied e
WHERE findings.project = e.project AND findings.user_id = e.user_id
  AND findings.session_id = e.session_id;

DELETE FROM touched_sessions;
DELETE FROM touched_keys;
