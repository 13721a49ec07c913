-- Where the packs of one recording lie, and how they are compressed.
SELECT i.pack, i.segment, i.codec
FROM pack_index i JOIN recordings r USING (rec)
WHERE ($project::VARCHAR IS NULL OR r.project = $project)
  AND ($user::VARCHAR IS NULL OR r.user_id = $user)
  AND r.session_id = $session_id
  AND i.rec = $rec
ORDER BY i.pack
