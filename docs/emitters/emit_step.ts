// Write step JSONL: one line after each model call. Node built-ins only; copy it as it is.
//
//   const log = new StepLog("agent.steps.jsonl");
//   log.emit("s-1", request, response, began);
//
// A line is one write at the end of the file, so processes may share it. A lane is written by one
// process: its lines say what changed since the line before. Nothing here throws into the agent;
// what could not be written is reported, and the next line of its lane is whole again. All types
// can be erased, so Node runs this file as it stands (22.18 and newer).

import { createHash } from "node:crypto";
import { closeSync, fstatSync, fsyncSync, openSync, readSync, writeSync } from "node:fs";

export type Body = { [name: string]: unknown };
export type More = {
  /** One growing context inside the session; give each sub-agent its own. */
  lane?: string;
  /** The lane that started this one. */
  parent?: string | null;
  /** What was compacted before this request, see docs/step-jsonl.md. */
  compaction?: Body;
  labels?: { [name: string]: string | number | boolean | null };
  [field: string]: unknown;
};
// A lane that was not heard of for so many others begins whole again.
const MOST_LANES = 1000;
type Known = { head: string; digests: string[] };

export class StepLog {
  path: string;
  deltas: boolean;
  sync: boolean;
  report: (error: unknown) => void;
  #lanes: Map<string, Known> = new Map();

  /** `deltas: false` writes every prompt whole; `sync: true` survives power cuts. */
  constructor(
    path: string,
    options: { deltas?: boolean; sync?: boolean; report?: (error: unknown) => void } = {},
  ) {
    this.path = path;
    this.deltas = options.deltas ?? true;
    this.sync = options.sync ?? false;
    this.report = options.report ?? ((error) => console.error("a step was not logged:", error));
  }

  /**
   * Log one call; true if it was written. `request` and `response` are the bodies, `began` is
   * `Date.now()` or a `Date` from when the call started. `more` holds the other fields of a line.
   */
  emit(
    session: string,
    request: Body,
    response: unknown,
    began: Date | number,
    more: More = {},
  ): boolean {
    const key = JSON.stringify([session, more.lane ?? "main"]);
    const known = this.#lanes.get(key);
    this.#lanes.delete(key);
    try {
      const answer = isBody(response) ? response : {};
      const rest: Body = { response: response ?? null, usage: answer.usage ?? null, ...more };
      const at = new Date(began);
      // Gateways reuse ids; with the time, an id is unique in its lane.
      const id = answer.id ? `${answer.id}@${at.toISOString()}` : null;
      const step: Body = { v: 1, session, lane: "main", parent: null, id, at };
      Object.assign(step, { ended_at: new Date(), model: request.model });
      for (const name of Object.keys(step)) {
        if (name in rest) step[name] = rest[name];
        delete rest[name];
      }
      const { [request.messages === undefined ? "input" : "messages"]: given, ...around } = request;
      if (!Array.isArray(given) && typeof given !== "string") throw new TypeError("no messages");
      const texts = Array.isArray(given) ? given.map(json) : [];
      const digests = texts.map((text) => createHash("sha256").update(text).digest("base64"));
      const head = json(around);
      const whole = `{"request":${json(request)}}`;
      let prompt = whole;
      if (texts.length > 0 && known !== undefined && known.head === head) {
        const delta = deltaOf(known.digests, digests, texts);
        prompt = delta.length < whole.length ? delta : whole;
      }
      this.#append(`${json(step).slice(0, -1)},${prompt.slice(1, -1)},${json(rest).slice(1)}`);
      if (this.deltas && texts.length > 0) this.#lanes.set(key, { head, digests });
      if (this.#lanes.size > MOST_LANES) this.#lanes.delete(this.#lanes.keys().next().value!);
      return true;
    } catch (error) {
      this.report(error);
      return false;
    }
  }

  /** Give a session a title, and labels for all its later steps. */
  describe(session: string, title: string | null, attributes: Body = {}): boolean {
    try {
      this.#append(json({ v: 1, type: "session", session, title, attributes }));
      return true;
    } catch (error) {
      this.report(error);
      return false;
    }
  }

  #append(line: string): void {
    const file = openSync(this.path, "a+", 0o600);
    try {
      const { size } = fstatSync(file);
      const last = Buffer.alloc(1);
      // A process that died while it wrote leaves half a line; do not add to that one.
      const open = size > 0 && readSync(file, last, 0, 1, size - 1) === 1 && last[0] !== 10;
      let data = Buffer.from(`${open ? "\n" : ""}${line}\n`);
      while (data.length > 0) data = data.subarray(writeSync(file, data));
      if (this.sync) fsyncSync(file);
    } finally {
      closeSync(file);
    }
  }
}

/** Log one call with its whole prompt; see `StepLog.emit`. */
export function emitStep(
  path: string,
  session: string,
  request: Body,
  response: unknown,
  began: Date | number,
  more: More = {},
): boolean {
  return new StepLog(path, { deltas: false }).emit(session, request, response, began, more);
}

/** What turns the messages with the digests `old` into those with the digests `now`. */
function deltaOf(old: string[], now: string[], messages: string[]): string {
  const replace: string[] = [];
  const drop: [number, number][] = [];
  let i = 0;
  let j = 0;
  for (; i < old.length && j < now.length; i++, j++) {
    if (old[i] === now[j]) continue;
    const later = old.indexOf(now[j], i + 1);
    if (later < 0) {
      replace.push(`{"index":${i},"message":${messages[j]}}`);
    } else {
      drop.push([i, later]);
      i = later;
    }
  }
  if (i < old.length) drop.push([i, old.length]);
  const edits = [`"append":[${messages.slice(j).join(",")}]`];
  if (replace.length > 0) edits.push(`"replace":[${replace.join(",")}]`);
  if (drop.length > 0) edits.push(`"drop":${json(drop)}`);
  return `{${edits.join(",")}}`;
}

/** Compact JSON: dates as ISO 8601, NaN as null, halves of surrogate pairs as escapes. */
function json(value: unknown): string {
  return JSON.stringify(value, (_, inner) => {
    if (typeof inner === "bigint") return Number(inner);
    if (inner instanceof Map) return Object.fromEntries(inner);
    return inner instanceof Set ? [...inner] : inner;
  });
}

function isBody(value: unknown): value is Body {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
