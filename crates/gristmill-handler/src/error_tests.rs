use super::*;
use std::io;

#[derive(Debug, thiserror::Error)]
#[error("level {n}")]
struct Level {
    n: usize,
    source: Option<Box<Level>>,
}

fn levels(n: usize) -> Level {
    (0..n).rev().fold(None, |source, n| Some(Box::new(Level { n, source }))).map(|outer| *outer).unwrap()
}

#[derive(Debug, thiserror::Error)]
enum StockError {
    #[error("sold out")]
    SoldOut,
    #[error("the warehouse does not answer")]
    Away(#[from] io::Error),
}

impl Classify for StockError {
    fn class(&self) -> ErrorClass {
        match self {
            Self::SoldOut => ErrorClass::Permanent,
            Self::Away(_) => ErrorClass::Transient,
        }
    }
}

fn plain<E: Error + Send + Sync + 'static>(error: E) -> HandlerError {
    fn run<E: Error + Send + Sync + 'static>(error: E) -> Result<(), HandlerError> {
        Err(error)?
    }
    run(error).unwrap_err()
}

#[test]
fn a_question_mark_makes_it_unknown_and_a_word_at_the_place_says_more() {
    assert_eq!(plain(io::Error::other("x")).class(), ErrorClass::Unknown);
    let failed = || Err::<(), _>(io::Error::other("x"));
    assert_eq!(failed().transient().unwrap_err().class(), ErrorClass::Transient);
    assert_eq!(failed().permanent().unwrap_err().class(), ErrorClass::Permanent);
    assert_eq!(Err::<(), _>("text").permanent().unwrap_err().chain(), ["text"]);
    let again = failed().transient().permanent().unwrap_err();
    assert_eq!((again.class(), again.chain()), (ErrorClass::Permanent, vec!["x".to_owned()]));
    assert_eq!(Err::<(), _>(StockError::SoldOut).classified().unwrap_err().class(), ErrorClass::Permanent);
}

#[test]
fn a_classifier_finds_its_type_anywhere_in_the_chain_and_overrides_no_one() {
    #[derive(Debug, thiserror::Error)]
    #[error("order failed")]
    struct Outer(#[source] StockError);
    let known = [classifier::<StockError> as Classifier];
    let class = |error: HandlerError| error.into_failure(&known).class;
    assert_eq!(class(plain(StockError::SoldOut)), ErrorClass::Permanent);
    assert_eq!(class(plain(Outer(StockError::Away(io::Error::other("x"))))), ErrorClass::Transient);
    assert_eq!(class(HandlerError::transient(StockError::SoldOut)), ErrorClass::Transient);
    assert_eq!(class(plain(io::Error::other("x"))), ErrorClass::Unknown);
    assert_eq!(plain(StockError::SoldOut).into_failure(&[]).class, ErrorClass::Unknown);
}

#[test]
fn the_chain_is_outermost_first_and_capped_in_count() {
    assert_eq!(plain(levels(3)).chain(), ["level 0", "level 1", "level 2"]);
    assert_eq!(plain(levels(MAX_CHAIN)).chain().len(), MAX_CHAIN);
    let long = plain(levels(MAX_CHAIN + 1)).chain();
    assert_eq!(long.len(), MAX_CHAIN);
    assert_eq!(long[MAX_CHAIN - 2], format!("level {}", MAX_CHAIN - 2));
    assert!(long[MAX_CHAIN - 1].contains("more than 15"), "{long:?}");
}

#[test]
fn each_error_is_capped_at_a_character() {
    let text = format!("a{}", "é".repeat(MAX_ERROR_BYTES));
    let kept = &HandlerError::permanent(text.clone()).chain()[0];
    assert!(kept.ends_with('…') && text.starts_with(kept.trim_end_matches('…')));
    assert_eq!(kept.len(), MAX_ERROR_BYTES - 1 + '…'.len_utf8());
    let fits = "x".repeat(MAX_ERROR_BYTES);
    assert_eq!(HandlerError::permanent(fits.clone()).chain(), [fits]);
}

#[test]
fn an_error_that_writes_without_end_is_stopped() {
    struct Endless;
    impl fmt::Display for Endless {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            loop {
                f.write_str("again and ")?;
            }
        }
    }
    assert!(capped(Endless).len() < MAX_ERROR_BYTES + 10);
}

#[test]
fn a_timeout_is_an_attempt_of_its_own_class() {
    let failure = HandlerError::timeout("no answer within 5 ms").into_failure(&[]);
    assert_eq!(failure, Failure::new(ErrorClass::Timeout, vec!["no answer within 5 ms".into()]));
}
