//! Compiles the BPF program and writes the Rust skeleton that carries it.

use std::env;
use std::error::Error;
use std::path::{Path, PathBuf};

use libbpf_cargo::SkeletonBuilder;

fn main() -> Result<(), Box<dyn Error>> {
    let root = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?);
    let source = root.join("../../bpf/steer.bpf.c");
    let skeleton = PathBuf::from(env::var("OUT_DIR")?).join("steer.skel.rs");
    println!("cargo:rerun-if-changed={}", source.display());

    let mut args = vec!["-Wall".to_owned(), "-Werror".to_owned(), "-O2".to_owned()];
    // <linux/types.h> includes <asm/types.h>, which Debian keeps in a folder that clang does not search for
    // the bpf target. The integer types are the same everywhere, so that this machine's will do when it
    // compiles for another.
    let target = env::var("CARGO_CFG_TARGET_ARCH")?;
    let host = env::var("HOST")?;
    let host = host.split('-').next().unwrap_or_default();
    let includes = [target.as_str(), host].map(|arch| format!("/usr/include/{arch}-linux-gnu"));
    if let Some(include) = includes.iter().find(|path| Path::new(path).is_dir()) {
        args.push(format!("-I{include}"));
    }
    SkeletonBuilder::new().source(&source).clang_args(args).build_and_generate(&skeleton).map_err(
        |error| {
            format!(
                "cannot compile {}: {error:#}\n(it needs clang, see `clang --print-targets | grep bpf`)",
                source.display()
            )
        },
    )?;
    Ok(())
}
