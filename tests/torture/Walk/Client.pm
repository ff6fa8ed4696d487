
# Copyright (c) 2026, the persistent-cache developers

=pod

=head1 NAME

Walk::Client - a session over a Unix socket, fast enough to ask a server that starts

=head1 SYNOPSIS

  my ($session, $error) = Walk::Client->connect($directory, $port, $database);
  my ($rows, $error) = $session->query($sql);

=head1 DESCRIPTION

Simple queries with trust authentication.  An error is a text, "severity
sqlstate message"; "lost" stands for a connection that broke.

=cut

package Walk::Client;

use strict;
use warnings FATAL => 'all';

use IO::Select;
use IO::Socket::UNIX;
use Time::HiRes qw(time);

sub connect    ## no critic (ProhibitBuiltinHomonyms)
{
	my ($class, $dir, $port, $db) = @_;
	local $SIG{PIPE} = 'IGNORE';
	my $socket = IO::Socket::UNIX->new(Peer => "$dir/.s.PGSQL.$port")
	  or return (undef, "lost no connection: $!");
	my $self = bless { socket => $socket, buffer => '', timeout => 120 }, $class;
	my $body = pack('N', 196608)
	  . join("\0", 'user', 'postgres', 'database', $db // 'postgres', 'application_name', 'walk')
	  . "\0\0";
	syswrite($socket, pack('N', 4 + length $body) . $body) // return (undef, 'lost at startup');
	my (undef, $error) = $self->answer;
	return $error ? (undef, $error) : ($self, undef);
}

sub message
{
	my ($self) = @_;
	my $deadline = time + $self->{timeout};
	while (1)
	{
		if (length $self->{buffer} >= 5)
		{
			my ($type, $length) = unpack('aN', $self->{buffer});
			if (length $self->{buffer} >= 1 + $length)
			{
				my $body = substr($self->{buffer}, 5, $length - 4);
				substr($self->{buffer}, 0, 1 + $length) = '';
				return ($type, $body);
			}
		}
		my $left = $deadline - time;
		return if $left <= 0 || !IO::Select->new($self->{socket})->can_read($left);
		my $n = sysread($self->{socket}, $self->{buffer}, 65536, length $self->{buffer});
		return if !$n;
	}
}

# Rows up to "ready for query", and the first error.
sub answer
{
	my ($self) = @_;
	my (@rows, $error);
	while (1)
	{
		my ($type, $body) = $self->message;
		if (!defined $type)
		{
			$self->{lost} = 1;
			return (\@rows, $error // 'lost');
		}
		if ($type eq 'Z') { return (\@rows, $error) }
		if ($type eq 'D')
		{
			my ($n, @row) = unpack('n', $body);
			my $at = 2;
			for (1 .. $n)
			{
				my $length = unpack('l>', substr($body, $at, 4));
				push @row, $length < 0 ? '' : substr($body, $at + 4, $length);
				$at += 4 + ($length < 0 ? 0 : $length);
			}
			push @rows, \@row;
		}
		elsif ($type eq 'E')
		{
			my %field = map { substr($_, 0, 1) => substr($_, 1) } grep { $_ ne '' } split /\0/, $body;
			$error //= "$field{V} $field{C} $field{M}";
			if ($field{V} =~ /FATAL|PANIC/)
			{
				$self->{lost} = 1;
				return (\@rows, $error);
			}
		}
	}
}

sub query
{
	my ($self, $sql) = @_;
	local $SIG{PIPE} = 'IGNORE';
	return ([], 'lost') if $self->{lost};
	syswrite($self->{socket}, 'Q' . pack('N', 5 + length $sql) . "$sql\0")
	  // do { $self->{lost} = 1; return ([], 'lost') };
	return $self->answer;
}

# One value; dies of an error.
sub value
{
	my ($self, $sql) = @_;
	my ($rows, $error) = $self->query($sql);
	die "$error, for: $sql\n" if $error;
	return @$rows ? join('|', @{ $rows->[0] }) : '';
}

1;
