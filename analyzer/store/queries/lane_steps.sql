-- The counted steps of one session, and of each recording the step right before its first.
WITH mine AS (
    SELECT s.*, r.lane, min(s.seq) FILTER (s.counted) OVER (PARTITION BY s.rec) AS first_counted
    FROM steps s JOIN recordings r USING (rec)
    WHERE ($project::VARCHAR IS NULL OR r.project = $project)
      AND ($user::VARCHAR IS NULL OR r.user_id = $user)
      AND r.session_id = $session_id
)
SELECT rec, seq, lane, step, counted, key, "at", ended_at, model, provider, has_usage, input,
       cache_read, cache_write, cache_write_5m, cache_write_1h, output, reasoning, prompt_ranges,
       breakpoints, settings, recorded, response_ranges, human, compaction, miss_reason,
       stop_reason, error, labels, copied_from, line, reported_cost,
       terms, apart, doubts
FROM mine
WHERE counted OR seq = first_counted - 1
ORDER BY lane, step, seq
