-- Records that could not be read, with their bytes.
SELECT f.project, f.user_id, f.source, p.path, p.line, p.pointer, p.message, p.raw
FROM problems p JOIN files f ON f.file_id = p.file_id
WHERE ($project::VARCHAR IS NULL OR f.project = $project)
  AND ($user::VARCHAR IS NULL OR f.user_id = $user)
ORDER BY p.path, p.line NULLS FIRST, p.pointer
