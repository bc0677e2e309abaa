use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::Path;

use super::PrepareError;

const FILES: &[(&str, &[u8])] = include!(concat!(env!("OUT_DIR"), "/sdk_files.rs"));
/// Both names of the library lead to one real directory, hence to one instance.
const NAMES: [&str; 2] = ["@boardwalk-labs/workflow", "@trestle/workflow"];
/// The script that Node is started with.
pub(crate) const LOADER: &str = "loader.mjs";

/// Writes the library's files. A fresh copy for each run: a run that rewrites its own does not change
/// the next one's.
pub(crate) fn write_sdk(directory: &Path) -> io::Result<()> {
    fs::create_dir_all(directory)?;
    for (name, content) in FILES {
        fs::write(directory.join(name), content)?;
    }
    Ok(())
}

/// Makes the library importable from a program.
pub(crate) fn link_sdk(program: &Path, sdk: &Path) -> Result<(), PrepareError> {
    for name in NAMES {
        let link = program.join("node_modules").join(name);
        match fs::symlink_metadata(&link) {
            Ok(_) => {
                return Err(PrepareError::invalid(
                    format!("the program brings its own {name}"),
                    "leave the SDK out of the artifact; the runtime provides it",
                ));
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(PrepareError::internal(format!("{}: {error}", link.display()))),
        }
        let place = || {
            if let Some(scope) = link.parent() {
                fs::create_dir_all(scope)?;
            }
            symlink(sdk, &link)
        };
        place().map_err(|error| PrepareError::internal(format!("cannot link the SDK: {error}")))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_names_lead_to_one_directory_that_holds_the_loader() {
        let root = tempfile::tempdir().unwrap();
        let (sdk, program) = (root.path().join("sdk"), root.path().join("program"));
        fs::create_dir(&program).unwrap();
        write_sdk(&sdk).unwrap();
        link_sdk(&program, &sdk).unwrap();
        let real = NAMES.map(|name| fs::canonicalize(program.join("node_modules").join(name)).unwrap());
        assert_eq!(real[0], real[1]);
        for file in [LOADER, "index.mjs", "runtime.mjs", "package.json"] {
            assert!(real[0].join(file).is_file(), "{file}");
        }
    }

    #[test]
    fn a_program_that_brings_the_library_is_refused() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("node_modules/@trestle/workflow")).unwrap();
        let error = link_sdk(root.path(), Path::new("/sdk")).unwrap_err();
        assert_eq!(error.code, "VALIDATION_FAILED");
        assert!(error.hint.is_some());
    }
}
