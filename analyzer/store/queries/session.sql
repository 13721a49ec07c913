-- One session's own row.
SELECT source, title, n_steps
FROM sessions
WHERE ($project::VARCHAR IS NULL OR project = $project)
  AND ($user::VARCHAR IS NULL OR user_id = $user)
  AND session_id = $session_id
