//! Tests of the pictures of the document's table and of unusual shapes.

use super::*;

/// The second set of selections of the document, on 16 × 16 elements of 4 bytes.
pub(super) fn table() -> LayoutView {
    let chunk = |offset: [u64; 2], shape: [u64; 2], server: u32| ChunkView {
        offset: vec![offset[0], offset[1] * 4],
        shape: vec![shape[0], shape[1] * 4],
        server: Some(server),
        bytes: shape[0] * shape[1] * 4,
        clip: None,
        chunk: None,
        step: None,
        order: None,
        codec: None,
    };
    LayoutView {
        dtype: "f4".to_owned(),
        layout: "aligned".to_owned(),
        dims: vec![16, 16],
        cells: vec![16, 64],
        elem: 4,
        complete: true,
        chunks: vec![
            chunk([0, 0], [10, 9], 1),
            chunk([0, 9], [7, 7], 2),
            chunk([10, 0], [6, 9], 1),
            chunk([7, 9], [9, 7], 2),
        ],
    }
}

fn drawn(view: &LayoutView, cut: &Cut) -> Result<Picture, String> {
    super::picture(view, cut, &[])
}

fn plain() -> Cut {
    Cut {
        axes: (0, 1),
        at: Vec::new(),
    }
}

#[test]
fn the_table_in_elements() {
    let picture = drawn(&table(), &plain()).expect("a picture");
    assert_eq!((picture.rows, picture.columns), (16, 16));
    let shown: Vec<_> = picture
        .pieces
        .iter()
        .map(|p| (p.selection(), p.shape()))
        .collect();
    assert_eq!(shown[0], ("[0:10,0:9]".to_owned(), "10 x 9".to_owned()));
    assert_eq!(shown[3], ("[7:16,9:16]".to_owned(), "9 x 7".to_owned()));
}

#[test]
fn partially_covered_elements_are_drawn_in_full() {
    let mut view = table();
    view.chunks = vec![ChunkView {
        offset: vec![0, 6],
        shape: vec![1, 4],
        server: Some(1),
        bytes: 4,
        clip: None,
        chunk: None,
        step: None,
        order: None,
        codec: None,
    }];
    let picture = drawn(&view, &plain()).expect("a picture");
    assert_eq!(picture.pieces[0].across.span, 1..3);
}

#[test]
fn steps_leave_gaps() {
    let mut view = table();
    view.chunks = vec![ChunkView {
        offset: vec![1, 0],
        shape: vec![10, 28],
        server: Some(1),
        bytes: 64,
        clip: None,
        chunk: None,
        step: Some(vec![3, 8]),
        order: None,
        codec: None,
    }];
    let picture = drawn(&view, &plain()).expect("a picture");
    let piece = &picture.pieces[0];
    let rows: Vec<u64> = (0..16).filter(|&row| piece.down.contains(row)).collect();
    let columns: Vec<u64> = (0..16)
        .filter(|&column| piece.across.contains(column))
        .collect();
    assert_eq!(rows, [1, 4, 7, 10]);
    assert_eq!(columns, [0, 2, 4, 6]);
    assert_eq!(piece.selection(), "[1:11:3,0:7:2]");
    assert_eq!(piece.shape(), "4 x 4");
}

#[test]
fn a_full_axis_next_to_a_stepped_one_has_no_gaps() {
    let mut view = table();
    view.chunks.truncate(1);
    view.chunks[0].shape = vec![9, 36];
    view.chunks[0].step = Some(vec![2, 36]);
    let picture = drawn(&view, &plain()).expect("a picture");
    assert_eq!(picture.pieces[0].selection(), "[0:9:2,0:9]");
}

#[test]
fn a_part_cut_off_by_a_shrink_is_not_drawn() {
    let mut view = table();
    view.chunks[0].clip = Some((vec![0, 0], vec![4, 64]));
    view.chunks[2].clip = Some((vec![0, 0], vec![4, 64]));
    let picture = drawn(&view, &plain()).expect("a picture");
    let shown: Vec<_> = picture.pieces.iter().map(Piece::selection).collect();
    assert_eq!(shown, ["[0:4,0:9]", "[0:7,9:16]", "[7:16,9:16]"]);
}

#[test]
fn planes_of_higher_rank() {
    let view = LayoutView {
        dtype: "f4".to_owned(),
        layout: "aligned".to_owned(),
        dims: vec![4, 5, 6],
        cells: vec![4, 5, 12],
        elem: 2,
        complete: true,
        chunks: vec![
            ChunkView {
                offset: vec![0, 0, 0],
                shape: vec![2, 5, 12],
                server: Some(1),
                bytes: 120,
                clip: None,
                chunk: None,
                step: None,
                order: None,
                codec: None,
            },
            ChunkView {
                offset: vec![2, 0, 4],
                shape: vec![2, 5, 4],
                server: Some(2),
                bytes: 40,
                clip: None,
                chunk: None,
                step: None,
                order: None,
                codec: None,
            },
        ],
    };
    let cut = |axes, at: &[u64]| Cut {
        axes,
        at: at.to_vec(),
    };
    let picture = drawn(&view, &cut((1, 2), &[3])).expect("a picture");
    assert_eq!(picture.pieces.len(), 1);
    assert_eq!(picture.pieces[0].across.span, 2..4);
    assert!(
        picture.caption.ends_with("axis 0 at 3"),
        "{}",
        picture.caption
    );
    assert_eq!(
        drawn(&view, &cut((0, 1), &[]))
            .expect("a picture")
            .pieces
            .len(),
        1
    );
    assert!(drawn(&view, &cut((0, 0), &[])).is_err());
    assert!(drawn(&view, &cut((0, 3), &[])).is_err());
    assert!(drawn(&view, &cut((0, 1), &[6])).is_err());
    assert!(drawn(&view, &cut((0, 1), &[1, 1])).is_err());
}

#[test]
fn vectors_scalars_and_nothing() {
    let scalar = LayoutView {
        dtype: "f4".to_owned(),
        layout: "aligned".to_owned(),
        dims: vec![],
        cells: vec![8],
        elem: 8,
        complete: true,
        chunks: vec![ChunkView {
            offset: vec![0],
            shape: vec![8],
            server: Some(1),
            bytes: 8,
            clip: None,
            chunk: None,
            step: None,
            order: None,
            codec: None,
        }],
    };
    let picture = drawn(&scalar, &plain()).expect("a picture");
    assert_eq!(
        (picture.rows, picture.columns, picture.pieces.len()),
        (1, 1, 1)
    );
    let vector = LayoutView {
        dtype: "f4".to_owned(),
        layout: "aligned".to_owned(),
        dims: vec![10],
        cells: vec![40],
        elem: 4,
        complete: true,
        chunks: vec![ChunkView {
            offset: vec![8],
            shape: vec![12],
            server: Some(1),
            bytes: 12,
            clip: None,
            chunk: None,
            step: None,
            order: None,
            codec: None,
        }],
    };
    let picture = drawn(&vector, &plain()).expect("a picture");
    assert_eq!((picture.rows, picture.columns), (1, 10));
    assert_eq!(picture.pieces[0].across.span, 2..5);
    let empty = LayoutView {
        dtype: "f4".to_owned(),
        layout: "aligned".to_owned(),
        dims: vec![0, 4],
        cells: vec![0, 16],
        elem: 4,
        complete: true,
        chunks: vec![],
    };
    assert_eq!(drawn(&empty, &plain()).expect("a picture").rows, 0);
}

#[test]
fn axes_are_two_numbers() {
    assert_eq!(parse_axes("2, 3"), Ok((2, 3)));
    for wrong in ["", "1", "1,2,3", "a,b", "-1,0"] {
        assert!(parse_axes(wrong).is_err(), "{wrong:?}");
    }
}
