use super::*;

fn facts(tools: &[&str]) -> Facts {
    Facts {
        now_ms: 1_764_547_200_000,
        tool_names: tools.iter().map(ToString::to_string).collect(),
        skills: Vec::new(),
        schema: None,
        prompt: "PROMPT".to_owned(),
    }
}

fn tree(files: &[(&str, &str)]) -> (tempfile::TempDir, FileTree) {
    let dir = tempfile::tempdir().unwrap();
    for (path, text) in files {
        let path = dir.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    let tree = FileTree::open(dir.path()).unwrap();
    (dir, tree)
}

#[test]
fn without_tools_and_files_there_is_a_date_and_the_prompt() {
    let (_dir, workspace) = tree(&[("readme", "")]);
    let text = first_message(&facts(&[]), None, Some(&workspace));
    assert_eq!(text, "<env>\nDate: Monday, 2025-12-01 UTC\n</env>\n\nPROMPT");
}

#[test]
fn the_blocks_come_in_their_order() {
    let (_package, package) = tree(&[("AGENTS.md", "BUNDLED\n")]);
    let (_workspace, workspace) = tree(&[("AGENTS.md", "LOCAL")]);
    let mut facts = facts(&["fetch"]);
    facts.skills = vec![("pdf".to_owned(), "Reads\n PDFs".to_owned())];
    facts.schema = Some("SCHEMA".to_owned());
    let text = first_message(&facts, Some(&package), Some(&workspace));
    let places: Vec<usize> = [
        "# Working with tools",
        "<AGENTS.md source=\"workflow\" path=\"AGENTS.md\">\nBUNDLED\n</AGENTS.md>\n\n<AGENTS.md source=\"workspace\" path=\"AGENTS.md\">\nLOCAL\n</AGENTS.md>",
        "<skills>",
        "- pdf: Reads PDFs\n</skills>",
        "<env>",
        "PROMPT",
        "SCHEMA",
    ]
    .iter()
    .map(|block| text.find(block).unwrap_or_else(|| panic!("{block} is missing in {text}")))
    .collect();
    assert!(places.is_sorted(), "{text}");
    assert!(!text.contains("\n\n\n"));
}

#[test]
fn rules_about_tools_appear_with_their_tools() {
    let block = |tools: &[&str]| conventions::block(&facts(tools)).unwrap_or_default();
    assert_eq!(block(&[]), "");
    assert_eq!(block(&["skill"]), "");
    let plain = block(&["mine"]);
    for word in ["read with offset", "placeholder", "tests or the build", "todo", "confirm an edit"] {
        assert!(!plain.contains(word), "{word}");
    }
    assert_eq!(plain.matches("\n- ").count(), 3);
    let all = block(&["read", "grep", "bash", "edit", "write", "apply_patch", "todo"]);
    for word in
        ["read with offset", "shell equivalents", "placeholder", "several edits", "exactly once", "todo list"]
    {
        assert!(all.contains(word), "{word}");
    }
    assert!(!block(&["read"]).contains("shell equivalents"));
}

#[test]
fn the_working_directory_is_listed_for_tools_that_use_it() {
    let names: Vec<String> = (0..33).map(|n| format!("f{n:02}")).collect();
    let mut files: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "")).collect();
    files.push((".hidden", ""));
    files.push(("A/x", ""));
    let (dir, workspace) = tree(&files);
    std::os::unix::fs::symlink("A", dir.path().join("B")).unwrap();
    let text = environment::block(&facts(&["ls"]), Some(&workspace));
    assert!(text.contains("Working directory: .hidden, A/, B/, f00, "), "{text}");
    assert!(text.contains(", f26, …(+6 more). "), "{text}");
    let (_dir, empty) = tree(&[]);
    assert!(environment::block(&facts(&["bash"]), Some(&empty)).contains("empty"));
    assert!(environment::block(&facts(&["clock"]), Some(&empty)).contains("clock tool"));
    assert!(!environment::block(&facts(&["ls"]), None).contains("Working"));
}

#[test]
fn guides_are_bounded_in_number_size_and_depth() {
    let (_dir, root) = tree(&[
        ("AGENTS.md", "root"),
        ("a/b/c/d/e/f/AGENTS.md", "six"),
        ("a/b/c/d/e/f/g/AGENTS.md", "seven"),
        ("node_modules/x/AGENTS.md", "dependency"),
        (".git/AGENTS.md", "git"),
        ("agents.md", "wrong case"),
    ]);
    let text = guides::block(None, Some(&root)).unwrap();
    assert!(text.contains("root") && text.contains("six"));
    for absent in ["seven", "dependency", "git\"", "wrong case"] {
        assert!(!text.contains(absent), "{absent}");
    }
    let many: Vec<String> = (0..20).map(|n| format!("d{n:02}/AGENTS.md")).collect();
    let (_dir, root) = tree(&many.iter().map(|path| (path.as_str(), "x")).collect::<Vec<_>>());
    assert_eq!(guides::block(None, Some(&root)).unwrap().matches("<AGENTS.md").count(), 16);

    let large = "é".repeat(20_000);
    let paths: Vec<String> = (0..6).map(|n| format!("p{n}/AGENTS.md")).collect();
    let (_dir, root) = tree(&paths.iter().map(|path| (path.as_str(), large.as_str())).collect::<Vec<_>>());
    let text = guides::block(None, Some(&root)).unwrap();
    assert_eq!(text.matches("[truncated: AGENTS.md exceeded 32768 bytes]").count(), 4);
    assert_eq!(text.matches('é').count() * 2, 131_072);
    let (_dir, exact) = tree(&[("AGENTS.md", &"x".repeat(32_768))]);
    assert!(!guides::block(None, Some(&exact)).unwrap().contains("truncated"));
}

#[test]
fn a_guide_is_read_once_and_never_from_outside() {
    let (outside, _) = tree(&[("AGENTS.md", "OUTSIDE")]);
    let (dir, root) = tree(&[("AGENTS.md", "ONCE"), ("real/x", "")]);
    std::os::unix::fs::symlink(outside.path(), dir.path().join("linked")).unwrap();
    std::os::unix::fs::symlink(outside.path().join("AGENTS.md"), dir.path().join("real/AGENTS.md")).unwrap();
    let text = guides::block(Some(&root), Some(&root)).unwrap();
    assert_eq!(text, "<AGENTS.md source=\"workflow\" path=\"AGENTS.md\">\nONCE\n</AGENTS.md>");
}
