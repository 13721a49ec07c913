-- The step table of one session: what was recorded, beside what the analysis says (USD, tokens, s).
WITH facts_of AS (
    SELECT * FROM step_facts
    WHERE ($project::VARCHAR IS NULL OR project = $project)
      AND ($user::VARCHAR IS NULL OR user_id = $user)
      AND session_id = $session_id
)
SELECT r.lane, s.step, s."at", s.ended_at, s.model, s.provider, f.n_messages, f.n_stubs,
       f.last_stub_index,
       s.input + coalesce(s.cache_read, 0) + coalesce(s.cache_write, 0) AS prompt_tokens,
       s.input AS input_tokens, s.cache_read AS cache_read_tokens,
       s.cache_write AS cache_write_tokens, s.cache_write_5m AS cache_write_5m_tokens,
       s.cache_write_1h AS cache_write_1h_tokens, s.output AS output_tokens,
       s.reasoning AS reasoning_tokens, f.cost_usd, s.reported_cost AS reported_usd, f.gap_s,
       f.window_used, f.shared_prefix_tokens, f.divergence_index, f.expected_read, f.lost_tokens,
       f.verdict, f.inferred, f.wasted_usd, f.expected, s.human, s.miss_reason, s.stop_reason,
       s.error, s.compaction, s.labels, s.key, s.line
FROM steps s
JOIN recordings r USING (rec)
LEFT JOIN facts_of f ON f.project = r.project AND f.user_id = r.user_id
    AND f.session_id = r.session_id AND f.lane = r.lane AND f.step = s.step
WHERE ($project::VARCHAR IS NULL OR r.project = $project)
  AND ($user::VARCHAR IS NULL OR r.user_id = $user)
  AND r.session_id = $session_id AND s.counted
ORDER BY r.lane <> 'main', r.lane, s.step
