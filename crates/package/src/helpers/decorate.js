// Applies legacy decorators, last one first.
function decorate(decorators, target, key, descriptor) {
  const isMember = arguments.length > 2;
  let result = descriptor === null ? Object.getOwnPropertyDescriptor(target, key) : isMember ? descriptor : target;
  for (let index = decorators.length - 1; index >= 0; index--) {
    const decorator = decorators[index];
    if (!decorator) continue;
    const changed = isMember
      ? arguments.length === 3
        ? decorator(target, key)
        : decorator(target, key, result)
      : decorator(result);
    result = changed || result;
  }
  if (arguments.length > 3 && result) Object.defineProperty(target, key, result);
  return result;
}
