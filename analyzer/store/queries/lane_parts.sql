-- The pools of one session's recordings, and where each body lies.
SELECT p.rec, p.idx, p.section, p.role, p.kind, p.digest, p.chars, p.estimate, p.tool, p.call_id,
       p.starts_message, p.placeholder, p.envelope, p.summary, p.markup, p.pack, p.body_offset, p.body_length
FROM parts p JOIN recordings r USING (rec)
WHERE ($project::VARCHAR IS NULL OR r.project = $project)
  AND ($user::VARCHAR IS NULL OR r.user_id = $user)
  AND r.session_id = $session_id
  AND list_contains($recs::BIGINT[], p.rec)
ORDER BY p.rec, p.idx
