// Makes a parameter's decorator one of the method.
function decorateParam(index, decorator) {
  return function (target, key) {
    decorator(target, key, index);
  };
}
