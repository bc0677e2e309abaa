import { sleep } from "@trestle/workflow";

const took = async (arg) => {
  const begun = performance.now();
  await sleep(arg);
  return performance.now() - begun;
};
const refused = (arg) => sleep(arg).then(() => "slept", ({ code, data }) => ({ code, data }));

export default async function run() {
  return {
    zero: (await took(0)) < 1000,
    past: (await took({ until: "2001-01-01T00:00:00Z" })) < 1000,
    short: await took("50ms"),
    until: await took({ until: new Date(Date.now() + 50) }),
    cap: await refused("8d"),
    nonsense: await refused({ until: "some day" }),
  };
}
