-- Sessions, newest first: tokens as recorded, money and the dearest cause as analysed (USD).
WITH costs AS (
    SELECT project, user_id, session_id, sum(cost_usd) AS cost_usd, sum(wasted_usd) AS wasted_usd,
           sum(wasted_usd) FILTER (expected IS NOT TRUE) AS avoidable_usd,
           max(prompt_tokens) AS peak_tokens, max(window_used) AS peak_window
    FROM step_facts
    WHERE ($project::VARCHAR IS NULL OR project = $project)
      AND ($user::VARCHAR IS NULL OR user_id = $user)
    GROUP BY ALL
), causes AS (
    SELECT project, user_id, session_id, kind, sum(wasted_usd) AS usd
    FROM findings
    WHERE kind <> 'accounting'
      AND ($project::VARCHAR IS NULL OR project = $project)
      AND ($user::VARCHAR IS NULL OR user_id = $user)
    GROUP BY ALL
), dearest AS (
    SELECT project, user_id, session_id, arg_max(kind, (coalesce(usd, 0), kind)) AS top_cause
    FROM causes GROUP BY ALL
)
SELECT s.project, s.user_id, s.session_id, s.source, s.title, s.started_at, s.ended_at,
       s.n_steps, s.n_lanes, s.n_copies, s.models, s.input, s.cache_read, s.cache_write, s.output,
       s.cache_read / nullif(s.input + coalesce(s.cache_read, 0) + coalesce(s.cache_write, 0), 0)
           AS hit_ratio,
       c.cost_usd, c.wasted_usd, c.avoidable_usd, c.peak_tokens, c.peak_window, d.top_cause,
       f.fingerprint IS NOT DISTINCT FROM s.fingerprint AS analysed
FROM sessions s
LEFT JOIN costs c USING (project, user_id, session_id)
LEFT JOIN dearest d USING (project, user_id, session_id)
LEFT JOIN facts f USING (project, user_id, session_id)
WHERE ($project::VARCHAR IS NULL OR s.project = $project)
  AND ($user::VARCHAR IS NULL OR s.user_id = $user)
ORDER BY s.started_at DESC NULLS LAST, s.project, s.user_id, s.session_id
