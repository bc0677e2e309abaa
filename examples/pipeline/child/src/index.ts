import { agent, phase } from "@trestle/workflow";

export interface Review {
  id: string;
  text: string;
}

export interface Rating {
  id: string;
  mood: "good" | "mixed" | "bad";
  /** What the review is about, in a few words. */
  about: string;
  words: number;
}

const ANSWER = {
  type: "object",
  properties: { mood: { enum: ["good", "mixed", "bad"] }, about: { type: "string" } },
  required: ["mood", "about"],
  additionalProperties: false,
};

export default async function run(review: Review | null): Promise<Rating> {
  if (!review?.text?.trim()) {
    throw Object.assign(new Error("the input has no review text"), { code: "EMPTY_REVIEW", hint: 'pass { "id": "…", "text": "…" }' });
  }
  phase("Rate");
  const answer = await agent<Pick<Rating, "mood" | "about">>(
    `Judge the mood of this review and say in a few words what it is about.\n\n<review>${review.text}</review>`,
    { name: "rater", builtins: "none", schema: ANSWER },
  );
  return { id: review.id, ...answer, words: review.text.trim().split(/\s+/).length };
}
