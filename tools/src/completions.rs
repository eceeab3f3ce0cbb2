//! `slabfs completions`: the completion script of a shell.

use clap_complete::Shell;

use crate::output;

/// Print a completion script for a shell.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  source <(slabfs completions bash)     # for this shell only
  mkdir -p ~/.local/share/bash-completion/completions
  slabfs completions bash > ~/.local/share/bash-completion/completions/slabfs
  mkdir -p ~/.zfunc && slabfs completions zsh > ~/.zfunc/_slabfs
      with fpath+=(~/.zfunc) before compinit in ~/.zshrc
  mkdir -p ~/.config/fish/completions
  slabfs completions fish > ~/.config/fish/completions/slabfs.fish

Next: a new shell, and `slabfs st<Tab>`.")]
pub(crate) struct Args {
    /// The shell
    shell: Shell,
}

pub(crate) fn run(args: &Args, command: clap::Command) -> anyhow::Result<()> {
    // The scripts would offer commands that the help hides.
    let listed = command.get_subcommands().filter(|sub| !sub.is_hide_set());
    let mut command = clap::Command::new("slabfs")
        .args(command.get_arguments().cloned())
        .subcommands(listed.cloned());
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command, "slabfs", &mut script);
    output::print(&String::from_utf8(script)?)
}
