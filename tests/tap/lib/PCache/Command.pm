
# Copyright (c) 2026, the persistent-cache developers

=pod

=head1 NAME

PCache::Command - what does pg_pcache say of a cluster?

=head1 DESCRIPTION

The program is run with the data directory of the node, and nothing is expected
of its exit status.

=cut

package PCache::Command;

use strict;
use warnings FATAL => 'all';

use Exporter 'import';
use IPC::Run qw();
use JSON::PP qw();
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

our @EXPORT = qw(
  pcache
  verb_json
  verify_json
  status_json
  can_be_killed
);

# Run pg_pcache with these arguments on a node's cluster.  Returns exit status
# (minus the number of the signal, if one ended it), stdout and stderr.
sub pcache
{
	my ($node, @args) = @_;
	my @command = ('pg_pcache', '-D' => $node->data_dir, @args);

	note('running: ', join ' ', @command);
	IPC::Run::run(\@command, '<' => \undef, '>' => \my $out, '2>' => \my $err);
	note($err) if $err ne '';
	return (($? & 127) ? -($? & 127) : $? >> 8, $out, $err);
}

# What a verb of pg_pcache prints with --json, decoded, with exit status (rc) and
# stderr added.  More options may follow the verb.
sub verb_json
{
	my ($node, $verb, @args) = @_;
	my ($rc, $out, $err) = pcache($node, $verb, '--json', @args);
	my $json = $out eq '' ? {} : JSON::PP::decode_json($out);

	return { %$json, rc => $rc, stderr => $err };
}

sub verify_json { my ($node, @args) = @_; return verb_json($node, 'verify', @args) }
sub status_json { my ($node, @args) = @_; return verb_json($node, 'status', @args) }

# Was it built with the points at which PG_PCACHE_KILL_AT ends it?
sub can_be_killed
{
	my ($bindir) = run_command([ 'pg_config', '--bindir' ]);
	return slurp_file("$bindir/pg_pcache") =~ /PG_PCACHE_KILL_AT/;
}

1;
