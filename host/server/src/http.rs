//! The HTTP routes, under `/v1` and for operators, and the limits and formats that they share.
//!
//! | module | content |
//! |---|---|
//! | connection, seats | limits of connections, handshakes and idle time; the choice of the connection to close |
//! | unread | the rest of a body that a proxy sends although it was answered |
//! | proxies, auth_rate_limiter, sign_in_limiter | trusted proxies; the rate limits for unknown tokens and for sign-ins |
//! | app | the state that requests share |
//! | permit | the permits that a request holds, and the memory of bodies |
//! | intake, api_error, page | parsing of requests, the format of errors, and pages of lists |
//! | health, catalog, packs, flows, authoring, assist, eval, library, beside, files, runs, moment, tasks, agents, inbox, secrets, credentials, consents, start, steer, retry, migrate, jobs, events, socket, usage, me, audit | the routes |
//! | answers | the first answer to a question, for a person whose answer came later |
//! | admin, processes | the routes of the operators across tenants, and about the server |
//! | breakers | the routes of circuit breakers |
//! | broadcast | the broadcast of a run's events to many subscribers |
//! | feeds, notices | the changes over all runs of a tenant, and their stream |
//! | login, sign_in, cookie | the logins of browsers, sign-in by OpenID Connect, and the cookies of both |
//! | machines | machines with the tokens of issuers |
//! | triggers, webhooks, tenant_directory | routes of triggers, signed posts to them, and the tenants that have them |
//! | event_filter | the selection of events in a page |
//! | facts | the remembered facts of runs |
//! | withheld | the parts of answers that need the scope `run:read`, on routes that need another scope |
//! | metrics | the route `/metrics`, and the log of requests |
//! | limits | the limits of connections |

pub(crate) mod admin;
pub(crate) mod agents;
pub(crate) mod answers;
pub(crate) mod api_error;
pub(crate) mod app;
pub(crate) mod assist;
pub(crate) mod audit;
pub(crate) mod auth_rate_limiter;
pub(crate) mod authoring;
pub(crate) mod beside;
pub(crate) mod breakers;
pub(crate) mod broadcast;
pub(crate) mod catalog;
pub(crate) mod connection;
pub(crate) mod consents;
pub(crate) mod cookie;
pub(crate) mod credentials;
pub(crate) mod eval;
pub(crate) mod event_filter;
pub(crate) mod events;
pub(crate) mod facts;
pub(crate) mod feeds;
pub(crate) mod files;
pub(crate) mod flows;
pub(crate) mod forms;
pub(crate) mod health;
pub(crate) mod inbox;
pub(crate) mod intake;
pub(crate) mod jobs;
mod large_files;
pub(crate) mod library;
pub(crate) mod limits;
pub(crate) mod links;
pub(crate) mod login;
pub(crate) mod machines;
pub(crate) mod me;
pub(crate) mod metrics;
pub(crate) mod migrate;
pub(crate) mod moment;
pub(crate) mod notices;
pub(crate) mod packs;
pub(crate) mod page;
pub(crate) mod permit;
pub(crate) mod processes;
pub(crate) mod proxies;
pub(crate) mod retry;
pub(crate) mod runs;
pub(crate) mod search;
pub(crate) mod seats;
pub(crate) mod secrets;
pub(crate) mod sign_in;
pub(crate) mod sign_in_limiter;
pub(crate) mod socket;
pub(crate) mod start;
pub(crate) mod steer;
pub(crate) mod tasks;
pub(crate) mod tenant_directory;
pub(crate) mod tokens;
pub(crate) mod triggers;
pub(crate) mod unread;
pub(crate) mod usage;
pub(crate) mod webhooks;
pub(crate) mod withheld;

pub(crate) use flowcell_platform::identity;
