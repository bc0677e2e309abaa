import { readFile } from "node:fs/promises";
import { parallel, phase, workflows } from "@trestle/workflow";

interface Review {
  id: string;
  text: string;
}

interface Rating {
  id: string;
  mood: "good" | "mixed" | "bad";
  about: string;
  words: number;
}

export interface Input {
  /** The reviews that ship with the workflow when absent. */
  reviews?: Review[];
  /** Most children at a time; 4 by default. */
  concurrency?: number;
}

export interface Report {
  rated: number;
  /** Reviews whose child failed. */
  failed: string[];
  moods: Record<Rating["mood"], number>;
  /** One line for each review, worst first. */
  lines: string[];
}

const ORDER = ["bad", "mixed", "good"] as const;

async function shippedReviews(): Promise<Review[]> {
  return JSON.parse(await readFile(new URL("./reviews.json", import.meta.url), "utf8"));
}

export default async function run(input: Input | null): Promise<Report> {
  phase("Read");
  const reviews = input?.reviews ?? (await shippedReviews());

  phase("Rate");
  // Each call is a run of its own. A child that fails gives null, and the others go on.
  const ratings = await parallel(
    reviews.map((review) => () => workflows.call<Rating>("rate-review", review, { idempotencyKey: `rate-${review.id}` })),
    { concurrency: input?.concurrency ?? 4 },
  );

  phase("Sum up");
  const rated = ratings.filter((rating): rating is Rating => rating !== null);
  const moods = { good: 0, mixed: 0, bad: 0 };
  for (const { mood } of rated) moods[mood] += 1;
  rated.sort((a, b) => ORDER.indexOf(a.mood) - ORDER.indexOf(b.mood));
  return {
    rated: rated.length,
    failed: reviews.filter((_, index) => ratings[index] === null).map(({ id }) => id),
    moods,
    lines: rated.map(({ id, mood, about }) => `${id}: ${mood}, ${about}`),
  };
}
