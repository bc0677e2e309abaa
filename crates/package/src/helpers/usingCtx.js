// Keeps the resources of one block, and disposes of them in reverse order.
function usingCtx() {
  const empty = {};
  const stack = [];
  const combine = (error, suppressed) => {
    if (typeof SuppressedError === "function") {
      return new SuppressedError(error, suppressed, "An error was suppressed during disposal.");
    }
    const both = new Error("An error was suppressed during disposal.");
    both.name = "SuppressedError";
    both.error = error;
    both.suppressed = suppressed;
    return both;
  };
  const add = (isAsync, value) => {
    if (value === null || value === undefined) {
      if (isAsync) stack.push({ isAsync, value, dispose: undefined });
      return value;
    }
    if (Object(value) !== value) throw new TypeError("`using` declarations need an object, a function, null or undefined.");
    let dispose;
    if (isAsync) dispose = value[Symbol.asyncDispose ?? Symbol.for("Symbol.asyncDispose")];
    if (dispose === undefined) {
      const inner = value[Symbol.dispose ?? Symbol.for("Symbol.dispose")];
      dispose = isAsync && typeof inner === "function" ? function () { inner.call(this); } : inner;
    }
    if (typeof dispose !== "function") throw new TypeError("The resource cannot be disposed of.");
    stack.push({ isAsync, value, dispose });
    return value;
  };
  return {
    e: empty,
    u: add.bind(null, false),
    a: add.bind(null, true),
    d() {
      let error = this.e;
      const fail = (next) => {
        error = error === empty ? next : combine(next, error);
      };
      const finish = () => {
        if (error !== empty) throw error;
      };
      const next = () => {
        while (stack.length > 0) {
          const resource = stack.pop();
          try {
            const result = resource.dispose && resource.dispose.call(resource.value);
            if (resource.isAsync) return Promise.resolve(result).then(next, (cause) => (fail(cause), next()));
          } catch (cause) {
            fail(cause);
            if (resource.isAsync) return Promise.resolve().then(next);
          }
        }
        finish();
      };
      return next();
    },
  };
}
