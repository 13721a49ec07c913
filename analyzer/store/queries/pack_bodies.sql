-- Some compressed packs of one session, out of one segment.
SELECT k.pack, k.body
FROM packs_$segment k JOIN recordings r USING (rec)
WHERE ($project::VARCHAR IS NULL OR r.project = $project)
  AND ($user::VARCHAR IS NULL OR r.user_id = $user)
  AND r.session_id = $session_id
  AND k.rec = $rec AND list_contains($packs::INTEGER[], k.pack)
ORDER BY k.pack
