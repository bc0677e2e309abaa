import { artifacts } from "@trestle/workflow";

export default async function run() {
  return artifacts.write("huge.bin", "application/octet-stream", new Uint8Array(100 * 1024 * 1024 + 1)).then(
    () => "written",
    ({ code, message }) => ({ code, message }),
  );
}
