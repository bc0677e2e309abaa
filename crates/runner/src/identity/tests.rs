use super::*;

fn identity(url: &str, pool: &str) -> Identity {
    Identity {
        runner_id: "01R".into(),
        runner_token: "bwkr_x".into(),
        control_plane_url: url.into(),
        pool: pool.into(),
        org: None,
        name: "box".into(),
        created_at: 1,
    }
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn file_names_follow_the_shared_table() {
    let directory = IdentityDirectory::new("/i");
    for (url, pool, name) in [
        ("https://api.x", "default", "api.x--default.json"),
        ("http://api.x:80/", "default", "api.x--default.json"),
        ("http://127.0.0.1:8080/base", "gpu", "127.0.0.1_8080--gpu.json"),
        ("http://[::1]:9", "p", "___1__9--p.json"),
    ] {
        assert_eq!(directory.file(url, pool).unwrap(), Path::new("/i").join(name));
    }
    assert!(directory.file("https://api.x", "../etc").is_err());
    assert!(directory.file("api.x", "default").is_err());
}

#[test]
fn identity_is_private_and_survives_a_round_trip() {
    let home = tempfile::tempdir().unwrap();
    let directory = IdentityDirectory::new(home.path().join("a/b"));
    let saved = identity("http://127.0.0.1:7070", "default");
    let file = directory.save(&saved).unwrap();
    assert_eq!(mode(&file), 0o600);
    assert_eq!(mode(directory.path()), 0o700);
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    assert_eq!(directory.load("http://127.0.0.1:7070", "default").unwrap(), Some(saved.clone()));
    assert_eq!(mode(&file), 0o600);
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    directory.save(&saved).unwrap();
    assert_eq!(mode(&file), 0o600);
    assert!(fs::read_to_string(&file).unwrap().ends_with("}\n"));
    directory.remove("http://127.0.0.1:7070", "default").unwrap();
    assert_eq!(directory.load("http://127.0.0.1:7070", "default").unwrap(), None);
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0, "nothing temporary is left");
}

#[test]
fn an_identity_is_replaced_whole_or_not_at_all() {
    let home = tempfile::tempdir().unwrap();
    let directory = IdentityDirectory::new(home.path());
    let file = directory.save(&identity("http://x", "default")).unwrap();
    // A reader that has the old file open keeps reading the old one: it was not written in place.
    let mut old = fs::File::open(&file).unwrap();
    let renewed = Identity { runner_id: "02R".into(), ..identity("http://x", "default") };
    directory.save(&renewed).unwrap();
    let mut text = String::new();
    io::Read::read_to_string(&mut old, &mut text).unwrap();
    assert!(text.contains("01R") && !text.contains("02R"), "{text}");
    assert_eq!(directory.load("http://x", "default").unwrap(), Some(renewed));
}

#[test]
fn a_malformed_identity_counts_as_none_and_a_future_key_is_passed_over() {
    let home = tempfile::tempdir().unwrap();
    let directory = IdentityDirectory::new(home.path());
    let file = directory.save(&identity("http://x", "default")).unwrap();
    let good = fs::read_to_string(&file).unwrap();
    fs::write(&file, good.replace('{', "{\"extra\":{\"of\":1},")).unwrap();
    assert_eq!(directory.load("http://x", "default").unwrap(), Some(identity("http://x", "default")));
    for bad in [
        "".to_owned(),
        "{}".to_owned(),
        good.replace("\"01R\"", "\"\""),
        good.replace("\"01R\"", "7"),
        good.replace("http://x", "x"),
        good[..good.len() / 2].to_owned(),
    ] {
        fs::write(&file, &bad).unwrap();
        assert_eq!(directory.load("http://x", "default").unwrap(), None, "{bad}");
        assert!(file.exists(), "nothing is deleted");
    }
}

#[test]
fn a_token_is_never_used_for_another_origin() {
    let home = tempfile::tempdir().unwrap();
    let directory = IdentityDirectory::new(home.path());
    directory.save(&identity("https://api.x/base", "default")).unwrap();
    assert!(directory.load("https://api.x:443/other", "default").unwrap().is_some());
    // The name of the file is the same, the origin is not.
    let refused = directory.load("http://api.x:80", "default").unwrap_err();
    assert!(matches!(refused, RunnerError::OtherOrigin { .. }), "{refused}");
    assert!(refused.hint().unwrap().contains("https://api.x/base"));
    let overwritten = directory.save(&identity("http://api.x", "default"));
    assert!(matches!(overwritten, Err(RunnerError::OtherOrigin { .. })));
    assert!(directory.load("https://api.x", "default").unwrap().is_some(), "the saved one is whole");
}

#[test]
fn what_a_machine_joined_with_is_kept_for_its_own_runner() {
    let home = tempfile::tempdir().unwrap();
    let directory = IdentityDirectory::new(home.path());
    let mine = identity("http://x", "default");
    directory.save(&mine).unwrap();
    assert_eq!(directory.joined(&mine), None);
    let joined = Joined { runner_id: "01R".into(), labels: vec!["gpu".into()], interval_seconds: Some(5) };
    directory.save_joined(&mine, &joined).unwrap();
    assert_eq!(directory.joined(&mine), Some(joined));
    let renewed = Identity { runner_id: "02R".into(), ..mine.clone() };
    assert_eq!(directory.joined(&renewed), None, "another front end wrote the identity anew");
    let names: Vec<_> = fs::read_dir(home.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names.iter().filter(|name| name.to_string_lossy().ends_with(".json")).count(), 1);
}

#[test]
fn only_the_identity_of_the_removed_runner_is_forgotten() {
    let home = tempfile::tempdir().unwrap();
    let directory = IdentityDirectory::new(home.path());
    directory.save(&identity("http://x", "default")).unwrap();
    let other = Identity { runner_id: "02R".into(), ..identity("http://y", "default") };
    directory.save(&other).unwrap();
    fs::write(home.path().join("broken.json"), "{").unwrap();
    assert!(!directory.forget("03R"));
    assert!(directory.forget("01R"));
    assert_eq!(directory.load("http://x", "default").unwrap(), None);
    assert_eq!(directory.load("http://y", "default").unwrap(), Some(other));
}

#[test]
fn a_directory_that_cannot_be_written_is_told_before_anything_is_used_up() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("file");
    fs::write(&file, "").unwrap();
    assert!(matches!(IdentityDirectory::new(file.join("inside")).prepare(), Err(RunnerError::File { .. })));
    let directory = IdentityDirectory::new(home.path().join("fine"));
    directory.prepare().unwrap();
    assert_eq!(mode(directory.path()), 0o700);
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
}

#[test]
fn debug_output_of_an_identity_holds_no_token() {
    assert!(!format!("{:?}", identity("http://x", "p")).contains("bwkr_x"));
}
