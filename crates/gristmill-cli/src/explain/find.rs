//! A job by its producer's id, its place, its dead letter's id; else by looking through what there is, within bounds.

use crate::exit::Failure;
use gristmill_broker::dead::{DeadFound, DeadRange, DeadWalk, Order, SLICE};
use gristmill_broker::delayed::{DelayedView, Member};
use gristmill_broker::locate::{JobView, MarkView};
use gristmill_broker::survey::Sought;
use gristmill_broker::{Connection, QueueDefinition};
use gristmill_job::{JobId, Place, UnixMillis};

/// Returned jobs that are read at once.
const RETURNED_SLICE: usize = 50;

/// What is looked for.
pub(crate) struct Search {
    pub(crate) job: String,
    at: Option<(u16, Place)>,
}

/// Where something of it was found.
pub(crate) enum Spot {
    /// It waits or runs.
    Job { queue: QueueDefinition, partition: u16, job: Box<JobView> },
    /// It is for later.
    Delayed { queue: QueueDefinition, partition: u16, job: Box<DelayedView> },
    /// It is dead.
    Letter { queue: QueueDefinition, letter: Box<DeadFound> },
    /// Nothing of it is left but the mark of its id.
    Mark { queue: QueueDefinition, mark: MarkView, now: UnixMillis },
}

impl Spot {
    /// A letter may have the id of its job, and is then found twice.
    fn is_same_letter(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Letter { letter, .. }, Self::Letter { letter: other, .. }) => {
                letter.position == other.position
            }
            _ => false,
        }
    }
}

/// What was found.
#[derive(Default)]
pub(crate) struct Found {
    pub(crate) spots: Vec<Spot>,
    /// Jobs looked at one by one.
    pub(crate) jobs: u64,
    /// Letters looked at one by one.
    pub(crate) letters: u64,
    /// Whether there were more than may be looked at.
    pub(crate) cut_short: bool,
}

impl Search {
    /// # Errors
    /// A place without a queue.
    pub(crate) fn new(job: &str, queue: Option<&str>) -> Result<Self, Failure> {
        let at = job.split_once(':').and_then(|(partition, place)| {
            Some((partition.parse::<u16>().ok()?, Place::parse(place.as_bytes())?))
        });
        if at.is_some() && queue.is_none() {
            return Err(Failure::Usage(format!(
                "{job} is a place in a partition: say of which queue with --queue"
            )));
        }
        Ok(Self { job: job.to_owned(), at })
    }

    /// What to say where nothing was found.
    pub(crate) fn nothing(&self, found: &Found, queue: Option<&str>) -> String {
        let (job, Found { jobs, letters, .. }) = (&self.job, found);
        let within = queue.map_or_else(String::new, |queue| format!(" in queue {queue}"));
        let looked = format!("looked through {jobs} jobs and {letters} dead letters");
        let more = match (found.cut_short, self.at.is_some()) {
            (true, _) => "there are more: a higher --scan looks further",
            (false, true) => "a job that ended leaves nothing at its place: ask by its id",
            (false, false) => {
                "those are all there are: it ended longer ago than marks are kept, or never came, or its id is another"
            }
        };
        format!("there is no job, dead letter or mark {job}{within}; {looked}; {more}")
    }

    pub(crate) async fn run(
        &self,
        connection: &Connection,
        queues: &[QueueDefinition],
        scan: u64,
    ) -> Result<Found, Failure> {
        let mut found = Found::default();
        for queue in queues {
            match self.at {
                Some((partition, place)) => {
                    self.at(connection, queue, (partition, place), scan, &mut found).await?
                }
                None => self.known(connection, queue, &mut found).await?,
            }
        }
        if self.at.is_some() || !found.spots.is_empty() {
            return Ok(found);
        }
        for queue in queues {
            self.anywhere(connection, queue, scan, &mut found).await?;
        }
        Ok(found)
    }

    async fn at(
        &self,
        connection: &Connection,
        queue: &QueueDefinition,
        (partition, place): (u16, Place),
        scan: u64,
        found: &mut Found,
    ) -> Result<(), Failure> {
        if partition >= queue.partitions {
            let (name, last) = (&queue.name, queue.partitions - 1);
            return Err(Failure::Usage(format!("queue {name} has partitions 0 to {last}, got {partition}")));
        }
        if let Some(job) = connection.job_at(&queue.partition(partition), place).await? {
            found.spots.push(Spot::Job { queue: queue.clone(), partition, job: Box::new(job) });
            return Ok(());
        }
        let name = place.to_string();
        letters(connection, queue, &[partition], scan, found, |letter| {
            letter.letter.as_ref().is_ok_and(|record| record.place == name)
        })
        .await
    }

    /// What names it: letter ids, and the marks of producers' ids.
    async fn known(
        &self,
        connection: &Connection,
        queue: &QueueDefinition,
        found: &mut Found,
    ) -> Result<(), Failure> {
        for letter in connection.dead_find(queue, self.job.as_bytes()).await? {
            found.spots.push(Spot::Letter { queue: queue.clone(), letter: Box::new(letter) });
        }
        // A letter that was replayed is not there any more; its id still names the place of its job.
        if found.spots.is_empty()
            && let Some((partition, place)) = place_of_letter(&self.job).filter(|it| it.0 < queue.partitions)
            && let Some(job) = connection.job_at(&queue.partition(partition), place).await?
        {
            found.spots.push(Spot::Job { queue: queue.clone(), partition, job: Box::new(job) });
        }
        let id = JobId::from_stored(self.job.clone().into_bytes().into());
        let (now, marks) = connection.marks(queue, &id).await?;
        for mark in marks {
            let (word, rest) = mark.standing.split_once(' ').unwrap_or((&mark.standing, ""));
            let spot = match (word, Place::parse(rest.as_bytes())) {
                ("waiting", Some(place)) => {
                    let job = connection.job_at(&queue.partition(mark.partition), place).await?;
                    job.map(|job| Spot::Job {
                        queue: queue.clone(),
                        partition: mark.partition,
                        job: Box::new(job),
                    })
                }
                ("waiting", None) => {
                    let member = Member::from_stored(rest.to_owned().into());
                    let job = connection.delayed_at(&queue.partition(mark.partition), &member).await?;
                    job.map(|job| Spot::Delayed {
                        queue: queue.clone(),
                        partition: mark.partition,
                        job: Box::new(job),
                    })
                }
                ("dead", _) => {
                    let letters = connection.dead_find(queue, rest.as_bytes()).await?;
                    let its = letters.into_iter().find(|letter| letter.position.partition == mark.partition);
                    its.map(|letter| Spot::Letter { queue: queue.clone(), letter: Box::new(letter) })
                }
                _ => None,
            };
            let spot = spot.unwrap_or(Spot::Mark { queue: queue.clone(), mark, now });
            if !found.spots.iter().any(|known| known.is_same_letter(&spot)) {
                found.spots.push(spot);
            }
        }
        Ok(())
    }

    async fn anywhere(
        &self,
        connection: &Connection,
        queue: &QueueDefinition,
        scan: u64,
        found: &mut Found,
    ) -> Result<(), Failure> {
        let id = JobId::from_stored(self.job.clone().into_bytes().into());
        let sought = Sought { id: Some(id.clone()), ..Sought::default() };
        let mut left = scan;
        for partition in 0..queue.partitions {
            let keys = queue.partition(partition);
            let seen = connection.survey(&keys, &sought, left).await?;
            found.jobs += seen.jobs;
            found.cut_short |= seen.cut_short;
            left = left.saturating_sub(seen.jobs);
            let mut place = seen.found;
            let mut skip = 0;
            while place.is_none() && left > 0 {
                let places = connection.returned_places(&keys, skip, RETURNED_SLICE).await?;
                let jobs = connection.load(&keys, &places).await?;
                let hit = jobs.iter().find(|(_, job)| job.as_ref().is_some_and(|job| job.id == id));
                place = hit.map(|(place, _)| *place);
                skip += places.len();
                found.jobs += places.len() as u64;
                left = left.saturating_sub(places.len() as u64);
                if places.len() < RETURNED_SLICE {
                    break;
                }
            }
            if let Some(place) = place
                && let Some(job) = connection.job_at(&keys, place).await?
            {
                found.spots.push(Spot::Job { queue: queue.clone(), partition, job: Box::new(job) });
                return Ok(());
            }
            let (member, looked, more) = connection.find_delayed(&keys, &id, left).await?;
            found.jobs += looked;
            found.cut_short |= more;
            left = left.saturating_sub(looked);
            if let Some(member) = member
                && let Some(job) = connection.delayed_at(&keys, &member).await?
            {
                found.spots.push(Spot::Delayed { queue: queue.clone(), partition, job: Box::new(job) });
                return Ok(());
            }
        }
        let partitions: Vec<u16> = (0..queue.partitions).collect();
        letters(connection, queue, &partitions, scan, found, |letter| {
            letter.letter.as_ref().is_ok_and(|record| record.job == id.as_bytes())
        })
        .await
    }
}

/// The partition and the place in `<partition>-<ms>-<seq>-<turn>-<epoch>`.
fn place_of_letter(id: &str) -> Option<(u16, Place)> {
    let numbers: Vec<u64> = id.split('-').map(|number| number.parse().ok()).collect::<Option<_>>()?;
    match numbers[..] {
        [partition, ms, seq, _turn, _epoch] => Some((u16::try_from(partition).ok()?, Place { ms, seq })),
        _ => None,
    }
}

/// Looks through dead letters, the newest first, for one.
async fn letters(
    connection: &Connection,
    queue: &QueueDefinition,
    partitions: &[u16],
    scan: u64,
    found: &mut Found,
    is_it: impl Fn(&DeadFound) -> bool,
) -> Result<(), Failure> {
    let partitions: Vec<_> = partitions.iter().map(|partition| (queue.clone(), *partition)).collect();
    let range = DeadRange { order: Order::NewestFirst, ..DeadRange::default() };
    let mut walk = DeadWalk::new(connection.clone(), &partitions, range);
    let mut left = scan;
    while left > 0 {
        let portion = walk.next(SLICE.min(usize::try_from(left).unwrap_or(SLICE))).await?;
        if portion.is_empty() {
            return Ok(());
        }
        found.letters += portion.len() as u64;
        left = left.saturating_sub(portion.len() as u64);
        if let Some(letter) = portion.into_iter().find(&is_it) {
            found.spots.push(Spot::Letter { queue: queue.clone(), letter: Box::new(letter) });
            return Ok(());
        }
    }
    found.cut_short |= !walk.is_over();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_letters_id_names_a_place() {
        let place = Place { ms: 1_795_974_494_148, seq: 3 };
        assert_eq!(place_of_letter("7-1795974494148-3-0-1795974495195"), Some((7, place)));
        for other in ["", "7-1-2-3", "7-1-2-3-4-5", "70000-1-2-3-4", "7-1-2-3-x", "order-1-2-3-4"] {
            assert_eq!(place_of_letter(other), None, "{other}");
        }
    }
}
