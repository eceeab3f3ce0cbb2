//! The command line: the list of subcommands and their dispatch.
//!
//! The flags of a subcommand are in its own file; shared flags are in `args`. A config file is converted to
//! flags before clap sees them (`config`), so both are checked alike.

use std::ffi::OsString;

use clap::error::ErrorKind;
use clap::{ArgAction, CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::args::Verbosity;
use crate::{
    call, completions, config, couple, create, demo, drain, find, fsck, groups, import, info,
    layout, locks, logging, man, mdserver, meta, mount, objserver, servers, set, stats, status,
    stop, tag, tags, umount, untag, up, view,
};

/// N-dimensional arrays as files.
///
/// slabfs is a filesystem whose files are arrays. Each file has dims and an element type; any box of it can be
/// read or written as a file of its own (`temp@[0:10,0:9]`), and every written box is stored together on one
/// data server. Files without dims are ordinary files.
#[derive(Debug, Parser)]
#[command(
    name = "slabfs",
    version,
    args_override_self = true,
    disable_help_subcommand = false,
    after_help = "First steps:
  mkdir mnt && slabfs up --data data mnt --daemon  # everything in one process
  slabfs create mnt/temp --dims 16,16 --dtype f4   # an array of 16 x 16 floats
  head -c 360 /dev/urandom > block.bin             # 10 x 9 floats
  cp block.bin 'mnt/temp@[0:10,0:9]'               # write one box of it
  slabfs umount mnt                                # data keeps everything

`slabfs help COMMAND` explains one, with examples; `slabfs help view` explains selections."
)]
pub(crate) struct Cli {
    #[command(flatten)]
    verbosity: Verbosity,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Up(up::Args),
    Mdserver(mdserver::Args),
    Objserver(objserver::Args),
    Mount(mount::Args),
    Umount(umount::Args),
    Stop(stop::Args),
    Create(create::Args),
    Info(info::Args),
    Import(import::Import),
    Export(import::Export),
    Collate(import::Collate),
    Set(set::Args),
    Layout(layout::Args),
    Status(status::Args),
    Stats(stats::Args),
    Servers(servers::Args),
    Couple(couple::Args),
    Locks(locks::Args),
    Find(find::Args),
    Tag(tag::Args),
    Untag(untag::Args),
    Tags(tags::Args),
    View(view::Args),
    Drain(drain::Args),
    Call(call::Args),
    Fsck(fsck::Args),
    Meta(meta::Args),
    Completions(completions::Args),
    Man(man::Args),
    Demo(demo::Args),
    #[command(name = demo::WRITER_COMMAND, hide = true)]
    DemoWriter(demo::WriterArgs),
}

/// Parses a command line; the contents of its `--config` file are inserted before the flags.
pub(crate) fn parse(argv: Vec<OsString>) -> Result<Cli, clap::Error> {
    if repeats_data(&argv) {
        let text = "--data is given more than once, and a process has one data directory; start one `slabfs objserver` for each directory, or `slabfs up --servers N` with a link to each disk (os1, os2, …) in its data directory";
        return Err(Cli::command().error(ErrorKind::ArgumentConflict, text));
    }
    // Each option stands once, unless it is a list; those of the config file are overridden.
    let once = checked().args_override_self(false);
    if let Err(error) = once.try_get_matches_from(&argv)
        && error.kind() == ErrorKind::ArgumentConflict
    {
        return Err(error);
    }
    let mut command = Cli::command();
    command.build();
    let argv = config::merge(&command, argv, &|path| std::fs::read_to_string(path))
        .map_err(|text| Cli::command().error(ErrorKind::ValueValidation, text))?;
    Cli::from_arg_matches(&checked().try_get_matches_from(argv)?)
}

/// The command line as it is parsed.
fn checked() -> clap::Command {
    groups::grouped(Cli::command())
        .long_about(None::<&str>)
        .mut_subcommands(|command| {
            in_one_help(command).mut_args(|arg| match arg.get_action() {
                // Makes `--limit -1` an invalid number, not an unknown flag.
                ArgAction::Set | ArgAction::Append if !arg.is_positional() => {
                    arg.allow_negative_numbers(true)
                }
                // A flag means the same when it is repeated.
                ArgAction::SetTrue => {
                    let id = arg.get_id().clone();
                    arg.overrides_with(id)
                }
                _ => arg,
            })
        })
}

/// Whether a service is given two data directories. Of other flags the last one counts.
fn repeats_data(argv: &[OsString]) -> bool {
    let mut words = argv.iter().skip(1).map(|word| word.to_string_lossy());
    let command = words.find(|word| !word.starts_with('-'));
    let serves = matches!(command.as_deref(), Some("up" | "mdserver" | "objserver"));
    let flags = words.take_while(|word| word != "--");
    serves
        && flags
            .filter(|word| word == "--data" || word.starts_with("--data="))
            .count()
            > 1
}

/// Moves the long description into the short help. `--help` then is as compact as `-h`, each flag on one line, since
/// there is nothing that only the long help has.
fn in_one_help(command: clap::Command) -> clap::Command {
    match command.get_long_about().cloned() {
        Some(about) => command.about(about).long_about(None::<&str>),
        None => command,
    }
}

impl Cli {
    /// Runs the subcommand to its end.
    pub(crate) fn run(self) -> anyhow::Result<()> {
        let quiet = self.verbosity.quiet;
        let quiet_tool = logging::Level::tool(&self.verbosity);
        let fsck_level = logging::Level::fsck(&self.verbosity);
        let service = logging::Level::service(&self.verbosity);
        match self.command {
            Command::Up(args) => up::run(args, service),
            Command::Mdserver(args) => mdserver::run(args, service),
            Command::Objserver(args) => objserver::run(args, service),
            Command::Mount(args) => mount::run(args, service),
            Command::Umount(args) => with_log(quiet_tool, || umount::run(&args)),
            Command::Stop(args) => with_log(quiet_tool, || stop::run(&args)),
            Command::Create(args) => with_log(quiet_tool, || create::run(&args, quiet)),
            Command::Info(args) => with_log(quiet_tool, || info::run(&args)),
            Command::Set(args) => with_log(quiet_tool, || set::run(&args)),
            Command::Layout(args) => with_log(quiet_tool, || layout::run(&args)),
            Command::Status(args) => with_log(quiet_tool, || status::run(&args)),
            Command::Stats(args) => with_log(quiet_tool, || stats::run(&args)),
            Command::Drain(args) => with_log(quiet_tool, || drain::run(&args)),
            Command::Import(_) | Command::Export(_) | Command::Collate(_) => import::run(),
            Command::Servers(args) => with_log(quiet_tool, || servers::run(&args)),
            Command::Couple(args) => with_log(quiet_tool, || couple::run(&args)),
            Command::Locks(args) => with_log(quiet_tool, || locks::run(&args)),
            Command::Find(args) => with_log(quiet_tool, || find::run(&args, quiet)),
            Command::Tag(args) => with_log(quiet_tool, || tag::run(&args)),
            Command::Untag(args) => with_log(quiet_tool, || untag::run(&args)),
            Command::Tags(args) => with_log(quiet_tool, || tags::run(&args)),
            Command::View(args) => with_log(quiet_tool, || view::run(&args)),
            Command::Call(args) => with_log(quiet_tool, || call::run(&args)),
            Command::Fsck(args) => with_log(fsck_level, || fsck::run(&args)),
            Command::Meta(args) => with_log(quiet_tool, || meta::run(&args)),
            Command::Completions(args) => completions::run(&args, Cli::command()),
            Command::Man(args) => man::run(&args, Cli::command()),
            Command::Demo(args) => with_log(quiet_tool, || demo::run(args)),
            Command::DemoWriter(args) => demo::write(&args),
        }
    }
}

fn with_log(level: logging::Level, run: impl FnOnce() -> anyhow::Result<()>) -> anyhow::Result<()> {
    logging::start(level, None)?;
    run()
}

#[cfg(test)]
mod tests;
