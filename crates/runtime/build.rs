//! Embeds the library that programs are written against, so that a run needs no network and no install.

use std::path::{Path, PathBuf};
use std::{env, fs, io};

fn main() -> io::Result<()> {
    let root = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").ok_or(io::ErrorKind::NotFound)?);
    let sdk = root.join("../../sdk/typescript");
    println!("cargo::rerun-if-changed={}", sdk.display());
    let mut files = Vec::new();
    for entry in fs::read_dir(&sdk)? {
        let path = entry?.path();
        if is_needed(&path) {
            println!("cargo::rerun-if-changed={}", path.display());
            files.push(fs::canonicalize(path)?);
        }
    }
    files.sort();
    let mut list = String::from("&[\n");
    for file in files {
        let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
        list.push_str(&format!("    ({name:?}, include_bytes!({:?})),\n", file.display().to_string()));
    }
    list.push_str("]\n");
    let out = PathBuf::from(env::var_os("OUT_DIR").ok_or(io::ErrorKind::NotFound)?);
    fs::write(out.join("sdk_files.rs"), list)
}

/// Type declarations serve editors, not runs.
fn is_needed(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.is_file() && (name == "package.json" || name.ends_with(".mjs") || name.ends_with(".cjs"))
}
