-- What was ingested, newest first; a set of jointly read files has a row of its own.
SELECT file_id, owner, source, project, user_id, path, size, digest, content, ingested_at,
       n_steps, n_parts, n_problems
FROM files
WHERE ($project::VARCHAR IS NULL OR project = $project)
  AND ($user::VARCHAR IS NULL OR user_id = $user)
ORDER BY ingested_at DESC, path, file_id
