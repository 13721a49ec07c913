-- Stored parts of one session by section, kind and tool (characters, estimated tokens).
SELECT r.lane, p.section, p.role, p.kind, p.tool, count(*) AS n_parts,
       sum(p.chars)::BIGINT AS chars, sum(p.estimate + p.envelope)::BIGINT AS estimate
FROM parts p JOIN recordings r USING (rec)
WHERE ($project::VARCHAR IS NULL OR r.project = $project)
  AND ($user::VARCHAR IS NULL OR r.user_id = $user)
  AND r.session_id = $session_id
GROUP BY ALL
ORDER BY estimate DESC, r.lane, p.section, p.role, p.kind, p.tool
