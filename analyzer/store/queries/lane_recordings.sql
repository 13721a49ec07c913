-- The recordings of one session in the order in which their lanes are put together.
SELECT r.rec, r.lane, r.parent, r.n_steps, r.n_parts, f.source,
       count(s.seq) AS n_counted
FROM recordings r
JOIN files f ON f.file_id = r.file_id
LEFT JOIN steps s ON s.rec = r.rec AND s.counted
WHERE ($project::VARCHAR IS NULL OR r.project = $project)
  AND ($user::VARCHAR IS NULL OR r.user_id = $user)
  AND r.session_id = $session_id
GROUP BY ALL
ORDER BY min(r.parent IS NOT NULL), min(r.first_at) NULLS LAST, r.lane, min(f.digest), r.rec
