//! Skills of a package: named folders with instructions, listed in the first message and
//! read by the model when it needs them.

use std::io;

use serde_json::json;
use trestle_contract::inference::ToolSpec;
use trestle_contract::json::JsonObject;

use crate::{AgentError, EntryKind, FileTree, options};

/// Name of the tool that reads skills.
pub(crate) const SKILL_TOOL: &str = "skill";

/// The most bytes of a skill that the model gets at once.
const MAX_SKILL_BYTES: usize = 65_536;
const MAX_DESCRIPTION_BYTES: usize = 500;
/// How much of a `SKILL.md` is looked at.
const MAX_READ_BYTES: u64 = 1 << 20;

/// The skills that a call has pinned.
#[derive(Clone)]
pub(crate) struct SkillSet {
    skills: Vec<Skill>,
}

#[derive(Clone)]
struct Skill {
    name: String,
    description: String,
    folder: FileTree,
}

impl SkillSet {
    /// Finds every named skill in `skills/<name>/SKILL.md` of the package.
    pub(crate) fn resolve(package: Option<&FileTree>, names: &[String]) -> Result<Self, AgentError> {
        let mut skills: Vec<Skill> = Vec::new();
        for name in names {
            if !skills.iter().any(|skill| skill.name == *name) {
                skills.push(find(package, name)?);
            }
        }
        Ok(Self { skills })
    }

    /// Names and descriptions, in the order they were pinned.
    pub(crate) fn catalog(&self) -> Vec<(String, String)> {
        self.skills.iter().map(|skill| (skill.name.clone(), skill.description.clone())).collect()
    }

    /// The tool that reads them; none without skills.
    pub(crate) fn tool_spec(&self) -> Option<ToolSpec> {
        if self.skills.is_empty() {
            return None;
        }
        let names: Vec<&str> = self.skills.iter().map(|skill| skill.name.as_str()).collect();
        let schema = json!({
            "type": "object",
            "properties": {
                "name": { "type": "string", "enum": names, "description": "Which skill to load." },
                "file": { "type": "string", "description": "A file of the skill's folder to read instead." },
            },
            "required": ["name"],
            "additionalProperties": false,
        });
        let serde_json::Value::Object(input_schema) = schema else { return None };
        let description = format!(
            "Load the instructions of a skill before doing the task it covers. Pass `file` to read a file that \
             comes with the skill. Skills: {}.",
            names.join(", ")
        );
        Some(ToolSpec { name: SKILL_TOOL.to_owned(), description, input_schema })
    }

    /// Executes the tool. Blocks.
    pub(crate) fn read(&self, input: &JsonObject) -> Result<String, AgentError> {
        let text =
            |key: &str| input.get(key).and_then(serde_json::Value::as_str).filter(|text| !text.is_empty());
        let known: Vec<&str> = self.skills.iter().map(|skill| skill.name.as_str()).collect();
        let skill = text("name").and_then(|name| self.skills.iter().find(|skill| skill.name == name));
        let skill = skill.ok_or_else(|| {
            AgentError::invalid(
                "there is no skill of that name",
                format!("the skills are {}", known.join(", ")),
            )
        })?;
        match text("file") {
            Some(file) => skill.file(file),
            None => skill.instructions(),
        }
    }
}

impl Skill {
    fn file(&self, file: &str) -> Result<String, AgentError> {
        if !options::stays_inside(file) {
            return Err(AgentError::invalid(
                format!("\"{file}\" leads out of the skill's folder"),
                "name a file relative to the skill's folder",
            ));
        }
        let text = self.text(file).map_err(|error| {
            AgentError::invalid(
                format!("the skill \"{}\" has no readable file \"{file}\": {error}", self.name),
                "load the skill without `file` to see its files",
            )
        })?;
        let text = clipped(&text, MAX_SKILL_BYTES);
        Ok(format!("<skill-file name=\"{}\" file=\"{file}\">\n{text}\n</skill-file>", self.name))
    }

    fn instructions(&self) -> Result<String, AgentError> {
        let text = self.text("SKILL.md").map_err(|error| missing(&self.name, &error.to_string()))?;
        let body = FrontMatter::read(&text).body;
        let body = clipped(body.trim(), MAX_SKILL_BYTES);
        let mut out = format!("<skill name=\"{}\">\n{body}\n</skill>", self.name);
        let mut others: Vec<String> = self
            .folder
            .list(".")
            .unwrap_or_default()
            .into_iter()
            .filter(|entry| entry.kind == EntryKind::File && entry.name != "SKILL.md")
            .map(|entry| entry.name)
            .collect();
        if !others.is_empty() {
            others.sort();
            out.push_str(&format!(
                "\nMore files of this skill, read them with the `file` argument: {}",
                others.join(", ")
            ));
        }
        Ok(out)
    }

    fn text(&self, path: &str) -> io::Result<String> {
        let bytes = self.folder.read(path, MAX_READ_BYTES)?;
        Ok(text_prefix(&bytes).to_owned())
    }
}

fn find(package: Option<&FileTree>, name: &str) -> Result<Skill, AgentError> {
    let first_is_plain = name.starts_with(|c: char| c.is_ascii_alphanumeric());
    if !first_is_plain || !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-') {
        let shown: String = name.chars().take(40).collect();
        return Err(AgentError::invalid(
            format!("\"{shown}\" is not a valid skill name"),
            "skill names are made of letters, digits, _ and -, and begin with a letter or digit",
        ));
    }
    let Some(package) = package.filter(|tree| tree.is_directory("skills")) else {
        return Err(AgentError::invalid(
            format!("the skill \"{name}\" was not found: no skills were deployed with this package"),
            format!("put its instructions into skills/{name}/SKILL.md"),
        ));
    };
    if package.is_file(&format!("skills/{name}.md")) && !package.is_directory(&format!("skills/{name}")) {
        return Err(AgentError::invalid(
            format!("skills/{name}.md is in the old flat layout"),
            format!("move it to skills/{name}/SKILL.md"),
        ));
    }
    let folder =
        package.subtree(&format!("skills/{name}")).map_err(|error| missing(name, &error.to_string()))?;
    let bytes = folder.read("SKILL.md", MAX_READ_BYTES).map_err(|error| missing(name, &error.to_string()))?;
    let description = describe(text_prefix(&bytes));
    Ok(Skill { name: name.to_owned(), description, folder })
}

fn missing(name: &str, problem: &str) -> AgentError {
    AgentError::invalid(
        format!("no skills/{name}/SKILL.md was deployed: {problem}"),
        format!("add skills/{name}/SKILL.md to the package and deploy again"),
    )
}

fn describe(text: &str) -> String {
    let matter = FrontMatter::read(text);
    let described = matter.description.filter(|text| !text.is_empty());
    let first_line = || {
        let lines = matter.body.lines().map(str::trim);
        lines.filter(|line| !line.is_empty() && !line.starts_with('#')).map(str::to_owned).next()
    };
    let description = described.or_else(first_line).unwrap_or_else(|| "(no description)".to_owned());
    clipped(&description, MAX_DESCRIPTION_BYTES).to_owned()
}

/// The head of a `SKILL.md` between two `---` lines: `key: value` lines, no YAML.
struct FrontMatter {
    description: Option<String>,
    body: String,
}

impl FrontMatter {
    fn read(text: &str) -> Self {
        let text = text.replace("\r\n", "\n");
        let fenced = text.strip_prefix("---\n").and_then(|_| text[3..].find("\n---").map(|at| (3, 3 + at)));
        let Some((start, end)) = fenced else { return Self { description: None, body: text } };
        let description = text[start..end].lines().rev().find_map(|line| {
            let (key, value) = line.split_once(':')?;
            (key.trim() == "description").then(|| unquoted(value.trim()).trim().to_owned())
        });
        let rest = &text[end + 4..];
        let body = rest.split_once('\n').map_or("", |(_, body)| body).to_owned();
        Self { description, body }
    }
}

fn unquoted(value: &str) -> &str {
    ['"', '\'']
        .into_iter()
        .find_map(|quote| value.strip_prefix(quote).and_then(|rest| rest.strip_suffix(quote)))
        .unwrap_or(value)
}

/// The longest beginning of at most `limit` bytes that ends between characters.
pub(crate) fn clipped(text: &str, limit: usize) -> &str {
    &text[..text.floor_char_boundary(limit)]
}

/// The longest beginning of bytes that is text.
pub(crate) fn text_prefix(bytes: &[u8]) -> &str {
    bytes.utf8_chunks().next().map_or("", |chunk| chunk.valid())
}

#[cfg(test)]
mod tests {
    use super::*;
    use trestle_contract::ErrorCode;

    fn package(files: &[(&str, &str)]) -> (tempfile::TempDir, FileTree) {
        let dir = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = dir.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let tree = FileTree::open(dir.path()).unwrap();
        (dir, tree)
    }

    fn resolve(tree: &FileTree, names: &[&str]) -> Result<SkillSet, AgentError> {
        SkillSet::resolve(Some(tree), &names.iter().map(ToString::to_string).collect::<Vec<_>>())
    }

    #[test]
    fn descriptions_come_from_the_head_or_the_first_line() {
        let (_dir, tree) = package(&[
            ("skills/a/SKILL.md", "---\nname: other\r\ndescription: \"Does: things\"\n---\nbody"),
            ("skills/b/SKILL.md", "# Title\n\n First line\nsecond"),
            ("skills/c/SKILL.md", "# Only a title"),
            ("skills/d/SKILL.md", "---\ndescription: no closing fence"),
            ("skills/e/SKILL.md", &format!("---\ndescription: {}\n---\n", "é".repeat(400))),
        ]);
        let catalog = resolve(&tree, &["a", "b", "c", "d", "e", "a"]).unwrap().catalog();
        assert_eq!(
            catalog[..4].iter().map(|(_, text)| text.as_str()).collect::<Vec<_>>(),
            ["Does: things", "First line", "(no description)", "---",]
        );
        assert_eq!(catalog.len(), 5, "a skill pinned twice is listed once");
        assert_eq!(catalog[4].1.len(), 500);
    }

    #[test]
    fn a_skill_that_cannot_be_found_says_what_is_missing() {
        let (_dir, tree) = package(&[("skills/flat.md", "x"), ("skills/empty/other.md", "x")]);
        for (name, fragment) in [
            ("../etc", "not a valid skill name"),
            ("-a", "not a valid skill name"),
            ("", "not a valid skill name"),
            ("flat", "old flat layout"),
            ("empty", "no skills/empty/SKILL.md was deployed"),
            ("none", "no skills/none/SKILL.md was deployed"),
        ] {
            let error = resolve(&tree, &[name]).err().unwrap();
            assert_eq!(error.code, ErrorCode::ValidationFailed);
            assert!(error.message.contains(fragment), "{name}: {}", error.message);
        }
        let (_dir, bare) = package(&[("index.mjs", "")]);
        assert!(resolve(&bare, &["a"]).err().unwrap().message.contains("no skills were deployed"));
        assert!(SkillSet::resolve(None, &["a".to_owned()]).is_err());
    }

    #[test]
    fn the_tool_reads_the_body_and_the_files_of_a_skill_and_nothing_else() {
        let (dir, tree) = package(&[
            ("skills/a/SKILL.md", "---\ndescription: d\n---\n\n# Do it\nstep\n"),
            ("skills/a/z.txt", "zed"),
            ("skills/a/sub/deep.txt", "deep"),
            ("skills/b/SKILL.md", "secret b"),
            ("outside.txt", "outside"),
        ]);
        std::os::unix::fs::symlink(dir.path().join("outside.txt"), dir.path().join("skills/a/link.txt"))
            .unwrap();
        std::os::unix::fs::symlink("../../outside.txt", dir.path().join("skills/a/climb.txt")).unwrap();
        let skills = resolve(&tree, &["a"]).unwrap();
        let read = |value: serde_json::Value| skills.read(value.as_object().unwrap());
        assert_eq!(
            read(json!({ "name": "a", "file": "" })).unwrap(),
            "<skill name=\"a\">\n# Do it\nstep\n</skill>\nMore files of this skill, read them with the `file` argument: z.txt"
        );
        assert_eq!(
            read(json!({ "name": "a", "file": "sub/deep.txt" })).unwrap(),
            "<skill-file name=\"a\" file=\"sub/deep.txt\">\ndeep\n</skill-file>"
        );
        for input in [
            json!({}),
            json!({ "name": "b" }),
            json!({ "name": "a", "file": "../b/SKILL.md" }),
            json!({ "name": "a", "file": "link.txt" }),
            json!({ "name": "a", "file": "climb.txt" }),
            json!({ "name": "a", "file": "sub" }),
            json!({ "name": "a", "file": "/etc/passwd" }),
        ] {
            assert_eq!(
                read(input.clone()).err().map(|error| error.code),
                Some(ErrorCode::ValidationFailed),
                "{input}"
            );
        }
    }
}
