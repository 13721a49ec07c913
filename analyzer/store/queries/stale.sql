-- Sessions with steps whose facts are missing, of another analysis, or older than the session.
SELECT s.project, s.user_id, s.session_id
FROM sessions s LEFT JOIN facts f USING (project, user_id, session_id)
WHERE ($project::VARCHAR IS NULL OR s.project = $project)
  AND ($user::VARCHAR IS NULL OR s.user_id = $user)
  AND s.n_steps > 0
  AND (f.fingerprint IS DISTINCT FROM s.fingerprint
       OR f.analysis_version IS DISTINCT FROM $analysis_version)
ORDER BY s.project, s.user_id, s.session_id
