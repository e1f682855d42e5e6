//! A handler's panic is an answer, and keeps its message and where it happened.
//!
//! The place of a panic is known to the process's panic hook alone. [`hear`] puts one in front of whatever hook there is,
//! once per process; it leaves place and message with the thread, for the poll that catches the panic, and calls the other.

use gristmill_handler::{Answer, RunFuture};
use gristmill_job::{ErrorClass, Failure};
use std::any::Any;
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, PanicHookInfo, catch_unwind, set_hook, take_hook};
use std::sync::Once;
use std::task::{Context, Poll};

thread_local! {
    /// Where this thread panicked last.
    static PLACE: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// From now on panics keep their place. A program that sets a hook of its own later loses the places, nothing else.
pub(crate) fn hear() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = take_hook();
        set_hook(Box::new(move |panic: &PanicHookInfo<'_>| {
            let place = panic.location().map(ToString::to_string);
            // A panic while the thread's own values are dropped finds none of them; it is not a handler's.
            let _ = PLACE.try_with(|kept| kept.replace(place));
            before(panic);
        }));
    });
}

/// Polls once; a panic is an answer.
pub(crate) fn poll_caught(future: &mut RunFuture, cx: &mut Context<'_>) -> Poll<Answer> {
    catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(cx))).unwrap_or_else(|panic| {
        Poll::Ready(Answer::Failed(Failure::new(ErrorClass::Panic, vec![words(&*panic)])))
    })
}

fn words(panic: &(dyn Any + Send)) -> String {
    let said =
        panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    let said = said.unwrap_or("without words");
    match PLACE.try_with(RefCell::take).ok().flatten() {
        Some(place) => format!("the handler panicked at {place}: {said}"),
        None => format!("the handler panicked: {said}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;
    use std::panic::panic_any;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Waker;

    fn chain(future: RunFuture) -> String {
        let mut future = future;
        match poll_caught(&mut future, &mut Context::from_waker(Waker::noop())) {
            Poll::Ready(Answer::Failed(failure)) => {
                assert_eq!(failure.class, ErrorClass::Panic);
                failure.chain.join("|")
            }
            _ => panic!("no failure"),
        }
    }

    #[test]
    fn a_panic_keeps_message_and_place_and_the_hook_before_is_called() {
        static HEARD: AtomicUsize = AtomicUsize::new(0);
        let before = take_hook();
        set_hook(Box::new(move |panic| {
            HEARD.fetch_add(1, Ordering::SeqCst);
            before(panic);
        }));
        hear();
        hear();
        let line = line!() + 1;
        let formatted = chain(Box::pin(poll_fn(|_| panic!("sku {} has no price", 7))));
        let at = format!("the handler panicked at {}:{line}:", file!());
        assert!(formatted.starts_with(&at), "{formatted}");
        assert!(formatted.ends_with(": sku 7 has no price"), "{formatted}");
        let plain = chain(Box::pin(poll_fn(|_| panic!("plain"))));
        assert!(plain.contains(file!()) && plain.ends_with(": plain"), "{plain}");
        let other = chain(Box::pin(poll_fn(|_| panic_any(7))));
        assert!(other.contains(file!()) && other.ends_with(": without words"), "{other}");
        assert!(HEARD.load(Ordering::SeqCst) >= 3, "the hook before was lost");
    }
}
