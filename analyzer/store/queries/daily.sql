-- Per day (UTC): steps, tokens as recorded, money as analysed (USD).
SELECT date_trunc('day', s.started_at)::DATE AS day, count(*) AS n_sessions,
       sum(s.n_steps)::BIGINT AS n_steps, sum(s.input)::BIGINT AS input,
       sum(s.cache_read)::BIGINT AS cache_read, sum(s.cache_write)::BIGINT AS cache_write,
       sum(s.output)::BIGINT AS output, sum(c.cost_usd) AS cost_usd, sum(c.wasted_usd) AS wasted_usd
FROM sessions s
LEFT JOIN (
    SELECT project, user_id, session_id, sum(cost_usd) AS cost_usd, sum(wasted_usd) AS wasted_usd
    FROM step_facts
    WHERE ($project::VARCHAR IS NULL OR project = $project)
      AND ($user::VARCHAR IS NULL OR user_id = $user)
    GROUP BY ALL
) c USING (project, user_id, session_id)
WHERE ($project::VARCHAR IS NULL OR s.project = $project)
  AND ($user::VARCHAR IS NULL OR s.user_id = $user)
GROUP BY ALL
ORDER BY day NULLS LAST
