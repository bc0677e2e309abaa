import { secrets, sleep, usage } from "@trestle/workflow";

export default async function run() {
  const order = [];
  const done = (name) => () => order.push(name);
  const pause = sleep(300).then(done("pause"));
  await secrets.get("A").then(done("secret"));
  await usage.get().then(done("usage"));
  await pause;
  return order;
}
