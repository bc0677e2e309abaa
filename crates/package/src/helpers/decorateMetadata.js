// Records a design-time type where a metadata library is loaded.
function decorateMetadata(key, value) {
  if (typeof Reflect === "object" && typeof Reflect.metadata === "function") return Reflect.metadata(key, value);
}
