//! The header of a `.npy` file: magic, version, and a dictionary with the type, the order and the shape.

use std::io::Read;

use slabfs_model::{DType, DTypeKind};

use super::literal::Literal;
use crate::tree::{Exact, Variable};

/// The first bytes of every file.
const MAGIC: &[u8] = b"\x93NUMPY";
/// Longer headers are refused; NumPy itself reads 10,000 bytes.
const LONGEST: usize = 1 << 20;
/// The data begins at a multiple of this.
const ALIGN: usize = 64;

/// What a header says.
#[derive(Debug)]
pub struct Header {
    /// Its bytes, with magic and version.
    pub len: u64,
    /// The type of the elements.
    pub dtype: DType,
    /// What the dtype does not say.
    pub exact: Option<Exact>,
    /// They are in column-major order.
    pub fortran: bool,
    /// The lengths of the axes.
    pub shape: Vec<u64>,
}

impl Header {
    /// Reads a header from the beginning of a file.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn read(file: &mut impl Read) -> Result<Header, String> {
        let mut start = [0; 8];
        let cannot = |error: std::io::Error| format!("cannot be read: {error}");
        file.read_exact(&mut start).map_err(cannot)?;
        if &start[..6] != MAGIC {
            return Err("is not that of a .npy file".to_owned());
        }
        let digits = match start[6] {
            1 => 2,
            2 | 3 => 4,
            version => return Err(format!("has the version {version}; 1 to 3 are known")),
        };
        let mut wide = [0; 4];
        file.read_exact(&mut wide[..digits]).map_err(cannot)?;
        let len = u32::from_le_bytes(wide) as usize;
        if len > LONGEST {
            return Err(format!("has {len} bytes; at most {LONGEST} are read"));
        }
        let mut text = vec![0; len];
        file.read_exact(&mut text).map_err(cannot)?;
        let text = match start[6] {
            3 => String::from_utf8(text).map_err(|_| "is not UTF-8".to_owned())?,
            // Latin-1: each byte is a character.
            _ => text.iter().map(|&byte| char::from(byte)).collect(),
        };
        let dict = Literal::parse(&text)?;
        let part = |key: &str| dict.get(key).ok_or_else(|| format!("has no {key:?}"));
        let Literal::Bool(fortran) = *part("fortran_order")? else {
            return Err("has an order that is not True or False".to_owned());
        };
        let shape = lengths(part("shape")?).ok_or("has a shape that is no tuple of lengths")?;
        let (dtype, exact) = dtype_of(part("descr")?)?;
        Ok(Header {
            len: (8 + digits + len) as u64,
            dtype,
            exact,
            fortran,
            shape,
        })
    }

    /// The variable with this name.
    pub fn variable(&self, name: &str) -> Variable {
        Variable {
            exact: self.exact.clone(),
            ..Variable::new(name, self.dtype).with_axes(&self.shape)
        }
    }
}

fn lengths(shape: &Literal) -> Option<Vec<u64>> {
    let members = shape.members()?.iter();
    members
        .map(|len| match len {
            Literal::Int(len) => Some(*len),
            _ => None,
        })
        .collect()
}

/// The type of a descr in the text of Python, and its exact type if that is more than a dtype.
///
/// # Errors
/// What is wrong with it.
pub fn dtype_of_text(descr: &str) -> Result<(DType, Option<Exact>), String> {
    dtype_of(&Literal::parse(descr)?)
}

fn dtype_of(descr: &Literal) -> Result<(DType, Option<Exact>), String> {
    let exact = || Some(Exact::Numpy(descr.to_string()));
    let bad = |error: slabfs_model::DTypeError| format!("has a type that is not possible: {error}");
    match descr {
        Literal::Text(text) => match text.parse::<DType>() {
            Ok(dtype) => Ok((dtype, None)),
            // Dates and spans of time are integers; other numbers, opaque bytes.
            Err(_)
                if text
                    .get(1..)
                    .is_some_and(|rest| rest.starts_with(['M', 'm'])) =>
            {
                Ok((format!("{}i8", &text[..1]).parse().map_err(bad)?, exact()))
            }
            Err(_) => {
                let size = size_of(descr, 0)?;
                Ok((format!("V{size}").parse().map_err(bad)?, exact()))
            }
        },
        _ => {
            let size = size_of(descr, 0)?;
            Ok((format!("V{size}").parse().map_err(bad)?, exact()))
        }
    }
}

/// The bytes of an element.
fn size_of(descr: &Literal, depth: usize) -> Result<u64, String> {
    let unknown = || format!("has the type {descr}, which is not supported");
    if let Literal::Text(text) = descr {
        let plain = text.trim_start_matches(['<', '>', '|', '=']);
        if plain.starts_with('O') {
            return Err("has pickled objects, which are not read".to_owned());
        }
        let digits = plain.get(1..).ok_or_else(unknown)?;
        let digits = digits.split('[').next().unwrap_or(digits);
        let number: u64 = digits.parse().map_err(|_| unknown())?;
        return match plain.as_bytes()[0] {
            b'U' => Ok(number.saturating_mul(4)),
            b'b' | b'i' | b'u' | b'f' | b'c' | b'S' | b'V' | b'a' | b'M' | b'm' => Ok(number),
            _ => Err(unknown()),
        };
    }
    let Literal::List(fields) = descr else {
        // A type with the shape of each element, as in `('<f4', (2,))`.
        return match descr.members() {
            Some([of, shape]) if depth > 0 => times(size_of(of, depth + 1)?, shape),
            _ => Err(unknown()),
        };
    };
    let mut size: u64 = 0;
    for field in fields {
        let of = match field.members().ok_or_else(unknown)? {
            [_, of] => size_of(of, depth + 1)?,
            [_, of, shape] => times(size_of(of, depth + 1)?, shape)?,
            _ => return Err(unknown()),
        };
        size = size.saturating_add(of);
    }
    Ok(size)
}

fn times(size: u64, shape: &Literal) -> Result<u64, String> {
    let shape = match shape {
        Literal::Int(len) => vec![*len],
        shape => lengths(shape).ok_or("has a field with a shape that is no tuple of lengths")?,
    };
    Ok(shape
        .iter()
        .fold(size, |size, &len| size.saturating_mul(len)))
}

/// The header for a variable, in C order.
///
/// # Errors
/// Why there is none.
pub fn write(variable: &Variable) -> Result<Vec<u8>, String> {
    let descr = match &variable.exact {
        Some(Exact::Numpy(descr)) => descr.clone(),
        Some(Exact::Strings { .. }) => format!("'{}'", variable.dtype.numpy_name()),
        Some(Exact::Hdf5(_)) if variable.dtype.kind() == DTypeKind::Bytes => {
            format!("'{}'", variable.dtype.numpy_name())
        }
        Some(Exact::Hdf5(typ)) => return Err(format!("has the type {typ}, which NumPy has not")),
        Some(Exact::Null(_)) => return Err("has no elements and no shape (H5S_NULL)".to_owned()),
        None => format!("'{}'", variable.dtype.numpy_name()),
    };
    let shape = variable.shape().into_iter().map(Literal::Int).collect();
    let shape = Literal::Tuple(shape);
    let text = format!("{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}");
    let version = match (text.is_ascii(), text.len() < 60_000) {
        (false, _) => 3,
        (true, false) => 2,
        (true, true) => 1,
    };
    let digits = if version == 1 { 2 } else { 4 };
    let before = MAGIC.len() + 2 + digits;
    let len = (before + text.len() + 1).next_multiple_of(ALIGN) - before;
    let mut header = MAGIC.to_vec();
    header.extend([version, 0]);
    header.extend(&(len as u32).to_le_bytes()[..digits]);
    header.extend(text.as_bytes());
    header.resize(before + len - 1, b' ');
    header.push(b'\n');
    Ok(header)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(version: u8, text: &str) -> Result<Header, String> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend([version, 0]);
        let digits = if version == 1 { 2 } else { 4 };
        bytes.extend(&(text.len() as u32).to_le_bytes()[..digits]);
        bytes.extend(text.as_bytes());
        Header::read(&mut bytes.as_slice())
    }

    #[test]
    fn headers_of_all_versions() {
        for (version, descr, dtype, exact) in [
            (1, "'<f8'", "f8", false),
            (2, "'>i2'", ">i2", false),
            (3, "'|b1'", "b1", false),
            (1, "'<M8[ns]'", "i8", true),
            (1, "'<f16'", "V16", true),
            (1, "[('a', '<i4'), ('b', '>f8'), ('c', '|S3')]", "V15", true),
            (
                3,
                "[('p', '<f4', (2, 3)), ('größe', [('x', '|u1')])]",
                "V25",
                true,
            ),
        ] {
            let text =
                format!("{{'descr': {descr}, 'fortran_order': True, 'shape': (4, 5), }}   \n");
            let header = read(version, &text).expect(descr);
            assert_eq!(header.dtype.to_string(), dtype);
            assert_eq!((header.fortran, &header.shape[..]), (true, &[4, 5][..]));
            let variable = header.variable("a");
            assert_eq!(variable.exact.is_some(), exact, "{descr}");
            let written = write(&variable).expect("written");
            assert_eq!(written.len() % ALIGN, 0);
            let again = Header::read(&mut written.as_slice()).expect("read again");
            assert_eq!(again.len, written.len() as u64);
            assert_eq!((again.dtype, again.exact), (variable.dtype, variable.exact));
            assert!(!again.fortran);
        }
    }

    #[test]
    fn what_is_wrong_is_said() {
        let with = |descr: &str, shape: &str| {
            format!("{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}}}")
        };
        for (text, why) in [
            (with("'|O'", "()"), "pickled"),
            (with("'<x9'", "()"), "type"),
            (with("[('a', '|O')]", "()"), "pickled"),
            (with("'<f8'", "(-1,)"), "literal"),
            (with("'<f8'", "5"), "shape"),
            ("{'shape': ()}".to_owned(), "fortran_order"),
            (with("'|V99999999'", "()"), "not possible"),
            (with("''", "()"), "type"),
        ] {
            let error = read(1, &text).expect_err(&text);
            assert!(error.contains(why), "{error}");
        }
        assert!(read(4, "{}").is_err());
    }
}
