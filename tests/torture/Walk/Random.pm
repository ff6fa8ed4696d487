
# Copyright (c) 2026, the persistent-cache developers

=pod

=head1 NAME

Walk::Random - a stream of random numbers of its own for each event

=head1 DESCRIPTION

What an event draws depends on the walk's seed and the number of its stream
only, so a walk that is shortened keeps what is left of it.

A value that was given as an argument of the event takes the place of what is
drawn, and the draw is made nevertheless.  All values are kept, for messages.

=cut

package Walk::Random;

use strict;
use warnings FATAL => 'all';

use Digest::MD5 qw(md5);

sub new
{
	my ($class, $key, $args) = @_;
	return bless { key => $key, n => 0, args => $args // {}, drawn => {}, order => [] }, $class;
}

# In [0, 1), without a name.
sub real
{
	my ($self) = @_;
	return unpack('L', md5("$self->{key}/" . $self->{n}++)) / 2**32;
}

sub keep
{
	my ($self, $name, $value) = @_;
	$value = $self->{args}{$name} if exists $self->{args}{$name};
	push @{ $self->{order} }, $name if !exists $self->{drawn}{$name};
	$self->{drawn}{$name} = $value;
	return $value;
}

sub pick
{
	my ($self, $name, @values) = @_;
	return $self->keep($name, $values[ int($self->real * @values) ]);
}

# Likewise, but what is drawn after it stays what it was before there was this pick.
sub pick_apart
{
	my ($self, $name, @values) = @_;
	my $real = unpack('L', md5("$self->{key}/$name")) / 2**32;
	return $self->keep($name, $values[ int($real * @values) ]);
}

sub number
{
	my ($self, $name, $lo, $hi) = @_;
	return $self->keep($name, $lo + int($self->real * ($hi - $lo + 1)));
}

# In [0, $most), rounded down, so that a fraction of a list is in the list.
sub fraction
{
	my ($self, $name, $most) = @_;
	return $self->keep($name, sprintf('%.3f', int($self->real * ($most // 1) * 1000) / 1000));
}

sub chance
{
	my ($self, $name, $p) = @_;
	return $self->keep($name, $self->real < $p ? 1 : 0);
}

# For code that uses rand().
sub seed { my ($self) = @_; return int($self->real * 2**31); }

sub text
{
	my ($self) = @_;
	return join ',', map { "$_=$self->{drawn}{$_}" } @{ $self->{order} };
}

1;
