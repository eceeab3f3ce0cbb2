//! The defaults of a directory.

use std::path::Path;

use serde_json::{Value, json};
use slabfs_fs::view::attributes::{Attribute, json_of_spec};
use slabfs_fs::view::defaults;
use slabfs_mdserver::api::{Defaults, DefaultsChange, MdError};

use crate::create::assigned;
use crate::failure::usage;
use crate::onmount::Mount;

/// The defaults of a directory, as flags.
#[derive(Debug, Default, clap::Args)]
#[command(next_help_heading = "Defaults of a directory")]
pub(crate) struct DefaultArgs {
    /// Element type of arrays created in it
    #[arg(long, value_name = "TYPE")]
    default_dtype: Option<String>,
    /// Value of unwritten elements of arrays created in it
    #[arg(long, value_name = "VALUE", allow_hyphen_values = true)]
    default_fill: Option<String>,
    /// How objects created in it are cut into chunks
    #[arg(long, value_name = "LAYOUT")]
    default_layout: Option<String>,
    /// How chunks of objects created in it are compressed
    #[arg(long, value_name = "CODEC")]
    default_codec: Option<String>,
    /// Which data servers get new chunks of objects created in it
    #[arg(long, value_name = "PLACEMENT")]
    default_placement: Option<String>,
    /// A tag of objects created in it; may be repeated
    #[arg(long = "default-tag", value_name = "KEY=VALUE")]
    default_tag: Vec<String>,
    /// Remove a default: dtype, fill, layout, codec, placement, tags, tag:NAME or all; may be repeated
    #[arg(long, value_name = "WHICH")]
    clear_default: Vec<String>,
}

impl DefaultArgs {
    /// The properties.
    fn given(&self) -> impl Iterator<Item = (Attribute, &String)> {
        [
            (Attribute::Dtype, &self.default_dtype),
            (Attribute::Fill, &self.default_fill),
            (Attribute::Layout, &self.default_layout),
            (Attribute::Codec, &self.default_codec),
            (Attribute::Placement, &self.default_placement),
        ]
        .into_iter()
        .filter_map(|(field, text)| Some((field, text.as_ref()?)))
    }

    /// Whether no flag is given.
    pub(super) fn is_empty(&self) -> bool {
        self.given().next().is_none()
            && self.default_tag.is_empty()
            && self.clear_default.is_empty()
    }
}

/// Changes the defaults of a directory; the mount checks each of them.
pub(super) fn run(path: &Path, args: &DefaultArgs) -> anyhow::Result<()> {
    let mut given = Defaults::default();
    for (field, text) in args.given() {
        field
            .put(text, &mut given.spec)
            .map_err(|why| usage(format!("--default-{}: {why}", field.name())))?;
    }
    let mut set = json_of_spec(&given.spec);
    for which in &args.clear_default {
        defaults::key(which).map_err(|why| usage(format!("--clear-default: {why}")))?;
    }
    // Conflicts among the given defaults are wrong usage, whatever the directory has.
    let change = DefaultsChange {
        clear: Vec::new(),
        set: given,
    };
    if let Err(MdError::Invalid(why)) = Defaults::default().changed(&change) {
        return Err(usage(why));
    }
    let tags = assigned(&args.default_tag)?;
    if !tags.is_empty() {
        set.insert("tags".to_owned(), Value::Object(tags));
    }
    let mount = Mount::of(path)?;
    mount.call(&json!({
        "op": "defaults",
        "path": mount.inside(path)?,
        "clear": args.clear_default,
        "set": set,
    }))?;
    Ok(())
}
