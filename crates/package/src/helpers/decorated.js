// Runs standard decorators. `define` makes the class; its members were recorded on the way.
function decorated(classDecorators, define) {
  const members = [];
  const markers = [];
  const instanceExtra = [];
  const classExtra = [];
  let metadata;

  const check = (value, what) => {
    if (value !== undefined && typeof value !== "function") throw new TypeError(`A decorator must return ${what} or nothing.`);
    return value;
  };
  const call = (decorator, value, context, extra) => {
    if (typeof decorator !== "function") throw new TypeError("A decorator must be a function.");
    let open = true;
    context.addInitializer = (initializer) => {
      if (!open) throw new TypeError("Initializers cannot be added after decoration.");
      if (typeof initializer !== "function") throw new TypeError("An initializer must be a function.");
      extra.push(initializer);
    };
    context.metadata = metadata;
    const result = decorator(value, context);
    open = false;
    return result;
  };
  const run = (initializers, target) => {
    for (const initializer of initializers) initializer.call(target);
  };
  const reach = (member) => {
    const { name, kind } = member;
    if (member.access) return member.access;
    const access = { has: (object) => name in object };
    if (kind !== "setter") access.get = (object) => object[name];
    if (kind !== "method" && kind !== "getter") access.set = (object, value) => { object[name] = value; };
    return access;
  };
  const decorate = (member, target) => {
    const { kind, name, isStatic, init, extra } = member;
    const isPrivate = member.access !== undefined;
    const holder = isStatic ? target : target.prototype;
    const descriptor = kind === "field" ? undefined : Object.getOwnPropertyDescriptor(holder, name);
    const slot = { method: "value", getter: "get", setter: "set" }[kind];
    const sink = kind === "field" || kind === "accessor" ? extra : isStatic ? member.staticExtra : instanceExtra;
    for (const decorator of member.decorators.toReversed?.() ?? [...member.decorators].reverse()) {
      const context = { kind, name, static: isStatic, private: isPrivate, access: reach(member) };
      if (kind === "field") {
        const initializer = check(call(decorator, undefined, context, sink), "a function");
        if (initializer) init.unshift(initializer);
      } else if (kind === "accessor") {
        const result = call(decorator, { get: descriptor.get, set: descriptor.set }, context, sink);
        if (result === undefined) continue;
        if (result === null || typeof result !== "object") throw new TypeError("An accessor's decorator must return an object or nothing.");
        descriptor.get = check(result.get, "a function") ?? descriptor.get;
        descriptor.set = check(result.set, "a function") ?? descriptor.set;
        const initializer = check(result.init, "a function");
        if (initializer) init.unshift(initializer);
      } else {
        descriptor[slot] = check(call(decorator, descriptor[slot], context, sink), "a function") ?? descriptor[slot];
      }
    }
    if (descriptor) Object.defineProperty(holder, name, descriptor);
  };

  return define({
    at(decorators, kind, name, isStatic, access) {
      members.push({ decorators, kind, name, isStatic, access, init: [], extra: [], staticExtra: [] });
      const marker = Symbol();
      markers.push(marker);
      return marker;
    },
    key(value) {
      const name = typeof value === "symbol" ? value : String(value);
      members.at(-1).name = name;
      return name;
    },
    apply(target, name) {
      for (const marker of markers) delete target[marker];
      const own = Object.getOwnPropertyDescriptor(target, "name");
      if (own === undefined || (!own.writable && typeof own.value === "string")) {
        Object.defineProperty(target, "name", { value: name, configurable: true });
      }
      if (Symbol.metadata) {
        metadata = Object.create(Object.getPrototypeOf(target)?.[Symbol.metadata] ?? null);
        Object.defineProperty(target, Symbol.metadata, { value: metadata, configurable: true, writable: true });
      }
      const isField = (member) => member.kind === "field";
      const order = (member) => (isField(member) ? 2 : 0) + (member.isStatic ? 0 : 1);
      for (const member of members.map((entry, index) => [order(entry), index, entry]).sort((a, b) => a[0] - b[0] || a[1] - b[1])) {
        decorate(member[2], target);
      }
      let result = target;
      for (const decorator of [...classDecorators].reverse()) {
        const context = { kind: "class", name: name || undefined };
        result = check(call(decorator, result, context, classExtra), "a class") ?? result;
      }
      for (const member of members) run(member.staticExtra, target);
      this.result = result;
      return result;
    },
    start(instance) {
      run(instanceExtra, instance);
    },
    init(target, index, value) {
      return members[index].init.reduce((current, initializer) => initializer.call(target, current), value);
    },
    extra(target, index) {
      run(members[index].extra, target);
    },
    end() {
      run(classExtra, this.result);
      return this.result;
    },
  });
}
