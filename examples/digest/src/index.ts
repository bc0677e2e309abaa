import { readFile, readdir } from "node:fs/promises";
import { agent, phase, usage, type Context } from "@trestle/workflow";

export interface Input {
  /** Who reads the digest. */
  audience?: string;
  /** Most items; 5 by default. */
  items?: number;
}

export interface Item {
  title: string;
  /** Why it matters to the audience. */
  why: string;
  /** The note it comes from. */
  source: string;
}

export interface Digest {
  headline: string;
  items: Item[];
  /** How many notes were read. */
  notes: number;
  /** What the run had spent when the digest was done. */
  tokens: number;
}

interface Note {
  name: string;
  text: string;
}

/** Paths relative to `import.meta.url` start at the folder of workflow.jsonc. */
const NOTES = new URL("./notes/", import.meta.url);

async function readNotes(): Promise<Note[]> {
  const names = (await readdir(NOTES)).filter((name) => name.endsWith(".md")).sort();
  return Promise.all(names.map(async (name) => ({ name, text: await readFile(new URL(name, NOTES), "utf8") })));
}

function answerSchema(sources: string[], most: number) {
  const item = {
    type: "object",
    properties: { title: { type: "string" }, why: { type: "string" }, source: { enum: sources } },
    required: ["title", "why", "source"],
    additionalProperties: false,
  };
  return {
    type: "object",
    properties: { headline: { type: "string" }, items: { type: "array", items: item, minItems: 1, maxItems: most } },
    required: ["headline", "items"],
    additionalProperties: false,
  };
}

export default async function run(input: Input | null, context: Context): Promise<Digest> {
  const audience = input?.audience ?? "the team";
  const most = input?.items ?? 5;

  phase("Read");
  const notes = await readNotes();
  if (notes.length === 0) throw Object.assign(new Error("there are no notes to read"), { code: "NO_NOTES", hint: "put .md files in notes/" });
  console.log(`read ${notes.length} notes for ${audience}, attempt ${context.attempt}`);

  phase("Write");
  const answer = await agent<{ headline: string; items: Item[] }>(
    [
      `Write a digest of these notes for ${audience}: one headline and at most ${most} items.`,
      "Name for each item the note it comes from. Invent nothing.",
      ...notes.map(({ name, text }) => `<note name="${name}">\n${text.trim()}\n</note>`),
    ].join("\n\n"),
    { name: "editor", builtins: "none", schema: answerSchema(notes.map(({ name }) => name), most) },
  );

  const { tokens } = await usage.get();
  return { ...answer, notes: notes.length, tokens: tokens.spent };
}
