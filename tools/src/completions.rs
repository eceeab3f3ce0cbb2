//! `slabfs completions`: the completion script of a shell.

use clap_complete::Shell;

use crate::output;

/// Print a completion script for a shell.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  slabfs completions bash > /etc/bash_completion.d/slabfs       or ~/.local/share/bash-completion/completions/slabfs
  slabfs completions zsh > ~/.zfunc/_slabfs                     with fpath+=(~/.zfunc) before compinit in ~/.zshrc
  slabfs completions fish > ~/.config/fish/completions/slabfs.fish")]
pub(crate) struct Args {
    /// The shell
    shell: Shell,
}

pub(crate) fn run(args: &Args, mut command: clap::Command) -> anyhow::Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command, "slabfs", &mut script);
    output::print(&String::from_utf8(script)?)
}
