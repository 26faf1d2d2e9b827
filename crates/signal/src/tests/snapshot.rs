use crate::snapshot::channel;

#[test]
fn a_reader_sees_the_last_value() {
    let (mut publisher, reader) = channel([1, 2, 3]);
    assert_eq!(reader.try_read(), Some([1, 2, 3]));
    publisher.publish(&[4, 5, 6]);
    publisher.publish(&[7, 8, 9]);
    assert_eq!(reader.read(), [7, 8, 9]);
}

#[test]
fn a_change_is_reported_once_to_each_reader() {
    let (mut publisher, mut reader) = channel([1]);
    assert_eq!(reader.changed(), Some([1]), "the first value is news");
    assert_eq!(reader.changed(), None);
    let mut other = reader.clone();
    publisher.publish(&[1]);
    assert_eq!((reader.changed(), reader.changed()), (Some([1]), None));
    assert_eq!((other.changed(), other.changed()), (Some([1]), None));
}

#[test]
fn a_snapshot_of_nothing_still_has_versions() {
    let (mut publisher, mut reader) = channel([]);
    assert_eq!(reader.changed(), Some([]));
    publisher.publish(&[]);
    assert_eq!(reader.changed(), Some([]));
    assert_eq!(reader.changed(), None);
}
