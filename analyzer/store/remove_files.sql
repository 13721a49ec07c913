-- The owners of what is taken out are found anew: among the sessions it stood in, and wherever
-- else its keys stand.
INSERT INTO touched_sessions
SELECT DISTINCT project, user_id, session_id FROM recordings WHERE list_contains($owners, file_id);

INSERT INTO touched_keys
SELECT DISTINCT r.project, s.key
FROM steps s JOIN recordings r USING (rec) WHERE list_contains($owners, r.file_id);

DELETE FROM problems WHERE list_contains($owners, file_id);

DELETE FROM recordings WHERE list_contains($owners, file_id);

DELETE FROM files WHERE list_contains($owners, owner)
