-- Findings quote the content that they were made of: those of the sessions of some files go.
DELETE FROM facts WHERE (project, user_id, session_id) IN
(SELECT (project, user_id, session_id) FROM recordings WHERE list_contains($owners, file_id));

DELETE FROM step_facts WHERE (project, user_id, session_id) IN
(SELECT (project, user_id, session_id) FROM recordings WHERE list_contains($owners, file_id));

DELETE FROM findings WHERE (project, user_id, session_id) IN
(SELECT (project, user_id, session_id) FROM recordings WHERE list_contains($owners, file_id))
