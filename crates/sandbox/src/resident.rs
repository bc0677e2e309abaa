//! Memory that only the start of a process needed.
#![allow(unsafe_code, reason = "madvise has no safe wrapper")]

use std::fs;

/// Lets go of the pages of this program's code. What was read for the start alone is not held any longer;
/// what is needed again comes back from the page cache, a few pages at each touch. Only code is given back:
/// it is never written to, so the file has all of it.
pub fn give_back_start_up_pages() {
    let Ok(own) = fs::read_link("/proc/self/exe") else { return };
    let Some(own) = own.to_str() else { return };
    for line in fs::read_to_string("/proc/self/maps").unwrap_or_default().lines() {
        let Some((from, to)) = code_of(line, own) else { continue };
        // SAFETY: a private mapping of a file that is not writable, hence without changes of its own: its pages
        // hold what the file holds, and are read from there again when they are touched.
        let _ = unsafe { libc::madvise(from as *mut libc::c_void, to - from, libc::MADV_DONTNEED) };
    }
}

/// The range of a line of `maps` that is executable, private and never writable, of this file.
fn code_of(line: &str, file: &str) -> Option<(usize, usize)> {
    let (range, rest) = line.split_once(' ')?;
    let (rights, rest) = rest.split_once(' ')?;
    (rights == "r-xp" && rest.ends_with(file)).then_some(())?;
    let path = rest.splitn(4, ' ').nth(3)?.trim_start();
    (path == file).then_some(())?;
    let (from, to) = range.split_once('-')?;
    let (from, to) = (usize::from_str_radix(from, 16).ok()?, usize::from_str_radix(to, 16).ok()?);
    (from < to).then_some((from, to))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_code_of_the_program_itself_is_given_back() {
        let line =
            |rights: &str, path: &str| format!("55e0a000-55e0c000 {rights} 00002000 fe:00 1234    {path}");
        assert_eq!(
            code_of(&line("r-xp", "/usr/bin/trestle"), "/usr/bin/trestle"),
            Some((0x55e0_a000, 0x55e0_c000))
        );
        for (rights, path) in [
            ("r--p", "/usr/bin/trestle"),
            ("rw-p", "/usr/bin/trestle"),
            ("r-xs", "/usr/bin/trestle"),
            ("r-xp", "/usr/lib/libc.so.6"),
            ("r-xp", "/other/usr/bin/trestle"),
        ] {
            assert_eq!(code_of(&line(rights, path), "/usr/bin/trestle"), None, "{rights} {path}");
        }
        for bad in [
            "",
            "zz",
            "55e0a000-55e0c000 r-xp 0 fe:00 0",
            "55e0c000-55e0a000 r-xp 0 fe:00 1 /usr/bin/trestle",
        ] {
            assert_eq!(code_of(bad, "/usr/bin/trestle"), None, "{bad}");
        }
    }

    #[test]
    fn the_program_goes_on_and_holds_less_of_its_code() {
        let resident = || {
            let maps = fs::read_to_string("/proc/self/smaps").unwrap();
            let own = fs::read_link("/proc/self/exe").unwrap();
            let mut kilobytes = 0;
            let mut counts = false;
            for line in maps.lines() {
                if line.contains('-') && line.split(' ').next().is_some_and(|range| range.contains('-')) {
                    counts = code_of(line, own.to_str().unwrap()).is_some();
                } else if counts && let Some(rest) = line.strip_prefix("Rss:") {
                    kilobytes += rest.trim().trim_end_matches(" kB").parse::<u64>().unwrap();
                }
            }
            kilobytes
        };
        let before = resident();
        give_back_start_up_pages();
        let after = resident();
        assert!(before > 0 && after < before, "{before} kB before, {after} kB after");
    }
}
