// Stack traces that name the author's lines. This file and the maps are read when a stack is looked
// at, so a program that never fails pays nothing for them.
"use strict";
const { readFileSync } = require("node:fs");
const { SourceMap } = require("node:module");
const { dirname, resolve } = require("node:path");
const { fileURLToPath } = require("node:url");

const MAP_COMMENT = /^\/\/[#@] sourceMappingURL=(\S+)\s*$/gm;
const INLINE = /^data:application\/json[^,]*;base64,/;
const LOCATION = /(file:\/\/\/[^\s()]+|\/[^\s()]+):(\d+):(\d+)/;

/** Folders of an artifact that hold the author's sources under their own relative paths. */
const SOURCE_FOLDERS = [".trestle/app/", ".bw-src/"];

const maps = new Map();
let root;

function readMap(file) {
  const text = readFileSync(file, "utf8");
  const comment = [...text.matchAll(MAP_COMMENT)].at(-1);
  if (comment === undefined) return undefined;
  const [, url] = comment;
  const inline = INLINE.exec(url);
  const json =
    inline === null
      ? readFileSync(resolve(dirname(file), decodeURIComponent(url)), "utf8")
      : Buffer.from(url.slice(inline[0].length), "base64").toString("utf8");
  const payload = JSON.parse(json);
  return { map: new SourceMap(payload), base: resolve(dirname(file), payload.sourceRoot ?? "") };
}

function mapOf(file) {
  if (!maps.has(file)) {
    let found;
    try {
      found = readMap(file);
    } catch {
      // A missing or broken map leaves the place in the built file.
    }
    maps.set(file, found);
  }
  return maps.get(file);
}

const toPath = (place) => (place.startsWith("file:") ? fileURLToPath(place) : place);

/** The path as the author knows it: relative to the package. */
function authorPath(path) {
  if (root === undefined || !path.startsWith(root)) return path;
  const inside = path.slice(root.length);
  const folder = SOURCE_FOLDERS.find((name) => inside.startsWith(name));
  return folder === undefined ? inside : inside.slice(folder.length);
}

/** `path:line:column` of the source behind a place in a loaded file; lines and columns count from 1. */
function authorPlace(place, line, column) {
  const file = toPath(place);
  const known = mapOf(file);
  if (known !== undefined) {
    const entry = known.map.findEntry(line - 1, column - 1);
    if (entry.originalSource !== undefined) {
      const source = resolve(known.base, toPath(entry.originalSource));
      return `${authorPath(source)}:${entry.originalLine + 1}:${entry.originalColumn + 1}`;
    }
  }
  return `${authorPath(file)}:${line}:${column}`;
}

function describe(error) {
  try {
    return Error.prototype.toString.call(error);
  } catch {
    return "Error";
  }
}

function prepareStackTrace(error, frames) {
  let text = describe(error);
  for (const frame of frames) {
    let shown = String(frame);
    try {
      shown = shown.replace(LOCATION, (_, file, line, column) => authorPlace(file, Number(line), Number(column)));
    } catch {
      // the frame as the engine shows it
    }
    text += `\n    at ${shown}`;
  }
  return text;
}

/** Stacks name sources below `programRoot` as the author wrote them. */
function setRoot(programRoot) {
  root = programRoot.endsWith("/") ? programRoot : `${programRoot}/`;
}

module.exports = { authorPath, authorPlace, prepareStackTrace, setRoot };
